//! Makes the protobuf service from its schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/echo.proto").emit()
}
