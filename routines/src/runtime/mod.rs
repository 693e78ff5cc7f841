//! Runtimes: processes that run the routines of one package, and the pool of idle ones.

mod package_cache;
mod pool;
mod process;

pub(crate) use self::{
    package_cache::{Installed, Packages},
    pool::Pool,
    process::{Event, Runtime, StartError, Starter},
};
