//! The wire format: binary and bounded.

pub(crate) mod bulk;
pub(crate) mod codec;
pub(crate) mod hello;
pub(crate) mod large;
pub(crate) mod packet;
pub(crate) mod parcel;
pub(crate) mod payload;

/// The version of the wire format. Nodes of different versions do not communicate.
pub(crate) const VERSION: u32 = 5;
