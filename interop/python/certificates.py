"""Certificates made with the command line of OpenSSL, in a temporary folder."""

import pathlib
import shutil
import subprocess
import tempfile


class Authority:
    """Issues certificates; a context manager whose folder goes at its end."""

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        if not shutil.which("openssl"):
            raise SystemExit("openssl is not installed: certificates for the tests are made with it")
        self._temporary = tempfile.TemporaryDirectory(prefix="switchboard-certificates-")
        self.folder = pathlib.Path(self._temporary.name)
        self.ca = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        self._openssl("req", "-x509", "-subj", f"/CN={self._name}", "-days", "30", *self._new_key(self._key), "-out", self.ca)
        return self

    def __exit__(self, *_):
        self._temporary.cleanup()

    def issue(self, name, alternative="IP:127.0.0.1,DNS:localhost"):
        """Returns the paths of a certificate and its key."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\nbasicConstraints=CA:FALSE\n")
        self._openssl("req", "-new", "-subj", f"/CN={name}", *self._new_key(key), "-out", request)
        signer = ("-CA", self.ca, "-CAkey", self._key, "-CAcreateserial")
        self._openssl(
            "x509", "-req", "-in", request, *signer, "-days", "30", "-extfile", extensions, "-out", certificate
        )
        return certificate, key

    def _new_key(self, path):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
