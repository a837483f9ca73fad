//! Makes the demo's services from their schema, for `greeter` and `web`.

fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("../crates/switchboard-cli/proto/demo/v1/demo.proto").emit()
}
