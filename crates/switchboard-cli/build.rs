//! Makes the demo and bench services from their schemas, and one that tests call.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/demo/v1/demo.proto").emit()?;
    switchboard_build::proto("proto/bench/v1/bench.proto").emit()?;
    switchboard_build::thrift("thrift/bench.thrift").emit()?;
    switchboard_build::thrift("thrift/greeter.thrift").emit()?;
    switchboard_build::flatbuffers("fbs/echo.fbs").emit()
}
