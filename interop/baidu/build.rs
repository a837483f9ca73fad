//! Makes the service from its schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/echo.proto").owned().emit()
}
