//! Makes the services of `switchboard bench` from their schemas.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("../../crates/switchboard-cli/proto/bench/v1/bench.proto").emit()?;
    switchboard_build::thrift("../../crates/switchboard-cli/thrift/bench.thrift").emit()
}
