//! What goes over the wire: one binary format, bounded.

pub(crate) mod codec;
pub(crate) mod hello;
pub(crate) mod parcel;
pub(crate) mod payload;

/// The version of everything that nodes say to each other. Nodes of different versions do not talk.
pub(crate) const VERSION: u32 = 3;
