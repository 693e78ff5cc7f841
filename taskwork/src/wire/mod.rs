//! What goes over the wire: one binary format, bounded.

pub mod codec;

/// The version of everything that nodes say to each other. Nodes of different versions do not talk.
pub const VERSION: u32 = 1;
