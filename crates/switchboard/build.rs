//! Makes the service Channelz from its schema, if its feature is on.

#[cfg(feature = "channelz")]
fn main() -> Result<(), switchboard_build::Error> {
    switchboard_build::proto("proto/grpc/channelz/v1/channelz.proto").owned().emit()
}

#[cfg(not(feature = "channelz"))]
fn main() {}
