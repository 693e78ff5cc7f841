//! Workflows: a sequential program whose calls become tasks, ordered by the data that they read and write, after
//! E. Tejedor, *Programming and Parallelising Applications for Distributed Infrastructures*, 2013 (Java `StarSs`,
//! `COMPSs`).
//!
//! A task is a plain function with the attribute [`task`]. Its types say what it does to its data: it reads `&T`,
//! updates `&mut T`, makes what it returns; what it takes by value is copied into the call. Where the function is
//! called, [`Data<T>`] stands in the place of `&T` and `&mut T`, and of what it returns. A call returns at once. It is
//! run when what it reads is there, on any worker; so calls that do not depend on each other run side by side.
//!
//! ```
//! use dataflow_framework::{Data, Failure, Workflow, task, tasks};
//!
//! #[task]
//! fn fill(length: usize, with: f64) -> Vec<f64> {
//!     vec![with; length]
//! }
//!
//! #[task]
//! fn add(to: &mut Vec<f64>, from: &Vec<f64>) {
//!     for (to, from) in to.iter_mut().zip(from) {
//!         *to += from;
//!     }
//! }
//!
//! fn program() -> Result<f64, Failure> {
//!     let mut sum = fill(1000, 0.0);
//!     for number in 1..=10 {
//!         // These run side by side …
//!         let next = fill(1000, f64::from(number));
//!         // … and these one after another, since each updates what the one before has written.
//!         add(&mut sum, &next);
//!     }
//!     // Only this waits.
//!     Ok(sum.get()?.iter().sum())
//! }
//!
//! let sum = Workflow::new(tasks![fill, add])?.run(program)?;
//! assert_eq!(sum, 55_000.0);
//!
//! // The same without threads: each call is run where it is made.
//! assert_eq!(Workflow::new(tasks![fill, add])?.sequential().run(program)?, sum);
//! # Ok::<(), dataflow_framework::WorkflowError>(())
//! ```
//!
//! The compiler checks what other systems have to believe: a task that changes what it was to read does not compile,
//! and neither does a program that reads a result as if it were there.
//!
//! # Versions
//!
//! A handle names a *version* of data, which never changes. A call that updates data writes its next version, and the
//! handle then names that. So a call never waits for those that still read the version before; and clones of a handle
//! are snapshots. When nobody can read a version any more it is dropped, and the last call that reads it changes it in
//! place, so that nothing is copied in the usual case.
//!
//! # Failures
//!
//! A task fails when it returns an `Err` or panics. Calls that depend on what it should have written are not run, and
//! [`Data::get`] returns its [`Failure`] for everything that depends on it. A program that was told of no failure fails
//! with the first at its end: none is overlooked.
//!
//! # On a cluster
//!
//! A [`Program`] with a command line ([`cli`]) runs on all cores (`solve`), on several nodes within one process
//! (`solve --nodes 4`), and on the nodes of a cluster (`submit`), which may come and go: what a lost node had is made
//! again by the calls that had written it, as far as it is needed; what a leaving node has is copied to others before.
//! The program itself may be started again on another node, where it runs nothing that has ended before; so it has to
//! make the same calls each time. What tasks and programs do beside their data, such as writing a file, may be done
//! several times.
//!
//! # Files and external programs
//!
//! A [`File`] is data as any other: a task that takes `&File` gets the path of a file to read, one that takes
//! `&mut File` may rewrite it. [`Run`] runs an external program on files, each time in a directory of its own, and makes
//! files of what it writes. [`Data::<File>::publish`](Data::publish) puts a file where others find it.
//!
//! # Options
//!
//! `#[task(priority = 5, retry = 3)]` gives a task [`Options`]; `add::with().priority(9).call(&mut sum, &next)` gives
//! them to one call. The function itself stays: `add::now(&mut a, &b)` calls it as it was written.
//!
//! Some say where calls run: `#[task(cores = 4, memory = "2 GiB", needs("blast", "os=linux"))]` for what a call takes and
//! demands of its node, `spread` to have calls go to all nodes in turn, `everywhere` to have what they write copied to all.

#[cfg(test)]
extern crate self as dataflow_framework;

mod program;
mod task;
mod options;
mod value;
mod spilled;
mod core;
mod encoding;
mod ids;
mod invocation;
mod needs;
mod node;
mod cluster;
mod platform;
mod failure;
mod figures;
mod array;
mod file;
mod process;
mod isolated;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "cli")]
pub mod cli;
#[doc(hidden)]
pub mod simulation;
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../../docs/workflows.md")]
mod workflows {}
#[cfg(test)]
mod any_order_tests;
#[cfg(test)]
mod commute_tests;
#[cfg(test)]
mod constraints_tests;
#[cfg(test)]
mod declaring_tests;
#[cfg(test)]
mod failing_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod once_tests;
#[cfg(test)]
mod tests;

pub use dataflow_macros::task;
pub use dataflow_view as view;

pub use self::{
    array::{Array, Element},
    cluster::{Main, Program, Returned},
    failure::Failure,
    figures::Figures,
    file::{File, Run, set_work_dir},
    isolated::serve_isolated,
    node::{once_token, set_store, time_left},
    options::{OnFailure, Options},
    program::{
        Data, Group, Observe, PublishError, Reduction, Ref, RefMut, Workflow, WorkflowError, barrier,
        commute, group, reduce, set_publish_dir, surroundings as flow, wait_any,
    },
    task::{DuplicateTaskName, TaskDef, Tasks},
    value::Datum,
};

/// What the attribute [`task`] writes uses this. It may change at any time.
#[doc(hidden)]
pub mod __private {
    pub use crate::{failure::Failed, invocation::Invocation, program::Calling};
}
