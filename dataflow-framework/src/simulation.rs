//! Support for the project's simulator: the framework in virtual time, as a function of one seed.
//!
//! Everything is the production code: the graph, the lines between nodes, stores, fetches, the companion, and
//! the handles of the program. Only the clock and the threads come from a [`World`]: calls take virtual time on
//! workers that are loops on the runtime of the simulator, and the program has a thread that runs only while
//! everything else is suspended.

use std::panic::resume_unwind;

use serde::de::DeserializeOwned;

pub use crate::{
    cluster::Given,
    core::{How, Run, Seen, Version},
    platform::{Passing, World, enter},
};
use crate::{
    cluster::{Main, Program, Returned},
    encoding::decode,
    program::Stopped,
};

/// Returns the task of a job that runs a program.
pub fn root<P: Program>() -> Main<P> {
    Main::root()
}

/// Returns the shared data of a job that runs a program.
pub fn shared<A>(arguments: A) -> Given<A> {
    Given::new(arguments)
}

/// Returns the arguments in the shared data of a job that runs a program.
pub fn arguments<A: DeserializeOwned>(shared: &[u8]) -> Option<A> {
    decode(shared).ok().map(|given: Given<A>| given.arguments)
}

/// Returns the encoded output of a program, or the reason of its failure.
pub fn result(returned: Returned) -> Option<Result<Vec<u8>, String>> {
    returned.into_result()
}

/// Unwinds the program on this thread, which has neither returned nor failed.
pub fn stop() -> ! {
    resume_unwind(Box::new(Stopped))
}
