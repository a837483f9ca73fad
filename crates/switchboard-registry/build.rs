//! Makes the calls of etcd from our excerpt of its schema, when they are asked for.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "etcd")]
    switchboard_build::proto("proto/etcd.proto").emit()?;
    Ok(())
}
