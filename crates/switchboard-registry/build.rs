//! Generates the etcd client from our excerpt of its schema, if the feature is on.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "etcd")]
    switchboard_build::proto("proto/etcd.proto").emit()?;
    Ok(())
}
