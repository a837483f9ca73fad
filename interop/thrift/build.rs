//! Makes the test service from its schema.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::thrift("thrift/thrift_test.thrift").emit()
}
