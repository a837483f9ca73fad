//! The interop cases of gRPC.
