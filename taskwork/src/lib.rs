//! taskwork
pub mod config;
mod context;
mod core;
mod envelope;
mod figures;
mod id;
mod pool;
mod task;
pub mod wire;
pub use crate::{config::Limits, context::Context, envelope::Envelope, figures::Figures, id::*, task::*};
