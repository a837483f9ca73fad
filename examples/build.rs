//! Makes services from their schemas: `demo.proto` for `greeter` and `web`, `helloworld.proto` for `migrated`,
//! `calculator.thrift` for `calculator`.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("../crates/switchboard-cli/proto/demo/v1/demo.proto").emit()?;
    // Handlers get requests that own their parts, as tonic's do.
    switchboard_build::proto("proto/helloworld/helloworld.proto").owned().emit()?;
    switchboard_build::thrift("thrift/calculator.thrift").emit()
}
