//! Runtimes: processes that run the routines of one package, and the pool of idle ones.

mod package_cache;
mod page;
mod pool;
mod process;

pub(crate) use self::{
    package_cache::{Installed, Packages},
    page::SearchRequest,
    pool::Pool,
    process::{Event, Runtime, StartError, Starter},
};
