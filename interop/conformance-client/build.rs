//! Makes the messages of the suite from their schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/job.proto").owned().emit()
}
