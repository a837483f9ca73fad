//! Makes services from their schemas: `demo.proto` for `greeter` and `web`, `helloworld.proto` for `migrated`,
//! `calculator.thrift` for `calculator`.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("../crates/switchboard-cli/proto/demo/v1/demo.proto").emit()?;
    // Handlers get requests that own their parts and return streams of replies, as tonic's do.
    switchboard_build::proto("proto/helloworld/helloworld.proto").owned().returns_streams().emit()?;
    // The demo once more, for a test: its handlers return streams of replies.
    let streams = std::path::PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it")).join("streams");
    let demo = switchboard_build::proto("../crates/switchboard-cli/proto/demo/v1/demo.proto");
    demo.returns_streams().out_dir(streams).emit()?;
    switchboard_build::thrift("thrift/calculator.thrift").emit()
}
