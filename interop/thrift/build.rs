//! Makes the services from their schemas.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/greet/v1/greet.proto").owned().emit()?;
    switchboard_build::thrift("thrift/thrift_test.thrift").file("thrift/greet.thrift").emit()
}
