package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writeCertificate makes one that vouches for itself.
func writeCertificate(folder string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: private},
	} {
		check(os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
}

func certificateFile(name string) string {
	return filepath.Join(os.Getenv("RPCX_PEER_TLS"), name)
}

// trusting is for clients of servers with this certificate.
func trusting() *tls.Config {
	certificate, err := os.ReadFile(certificateFile("cert.pem"))
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return &tls.Config{RootCAs: roots}
}

// identity is for servers.
func identity() *tls.Config {
	certificate, err := tls.LoadX509KeyPair(certificateFile("cert.pem"), certificateFile("key.pem"))
	check(err)
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}

// inside is the listener within TLS.
func inside(listener net.Listener) net.Listener {
	return tls.NewListener(listener, identity())
}
