//! Makes the services of `switchboard bench` from their schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("../../crates/switchboard-cli/proto/bench/v1/bench.proto").emit()
}
