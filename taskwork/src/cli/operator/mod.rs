//! The operators command.
