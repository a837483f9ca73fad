//! Makes the test services from their schemas.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/connectrpc/conformance/v1/conformance.proto").owned().emit()?;
    switchboard_build::proto("proto/grpc/testing/test.proto").owned().emit()
}
