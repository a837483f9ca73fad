//! Makes the services from their schemas.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/echo.proto").emit()?;
    switchboard_build::thrift("thrift/quotients.thrift").emit()
}
