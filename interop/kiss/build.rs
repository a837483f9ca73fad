//! Makes the service from its schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::flatbuffers("fbs/echo.fbs").emit()
}
