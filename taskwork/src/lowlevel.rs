//! Parts for frameworks and command lines: idle workers, suggestions, output files, encoding.

pub use crate::{
    context::Hunger,
    idle::Idle,
    output_file::OutputFile,
    shell::memory::available_memory,
    variable::Suggested,
    wire::codec::{DecodeError, EncodeError},
};
