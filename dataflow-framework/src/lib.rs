//! Workflows: a sequential program whose calls become tasks, ordered by the data that they read and write, after
//! E. Tejedor, *Programming and Parallelising Applications for Distributed Infrastructures*, 2013 (Java `StarSs`,
//! `COMPSs`).
//!
//! A task is a plain function with the attribute [`task`]. The types of its parameters declare its data
//! accesses: it reads `&T`, updates `&mut T` and creates its result; arguments passed by value are copied into
//! the call. The caller passes [`Data<T>`] for `&T` and `&mut T` (`Data<Vec<T>>` for `&[T]`, `Data<String>` for `&str`),
//! and receives it as the result. A call returns immediately. It runs on any worker as soon as its inputs are available; so calls that do not depend on each
//! other run in parallel.
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
//! fn add(to: &mut Vec<f64>, from: &[f64]) {
//!     for (to, from) in to.iter_mut().zip(from) {
//!         *to += from;
//!     }
//! }
//!
//! fn program() -> Result<f64, Failure> {
//!     let mut sum = fill(1000, 0.0);
//!     for number in 1..=10 {
//!         // These calls run in parallel …
//!         let next = fill(1000, f64::from(number));
//!         // … and these one after another, since each updates the output of the previous one.
//!         add(&mut sum, &next);
//!     }
//!     // Only this waits.
//!     Ok(sum.get()?.iter().sum())
//! }
//!
//! let sum = Workflow::new(tasks![fill, add])?.run(program)?;
//! assert_eq!(sum, 55_000.0);
//!
//! // The same without threads: each call runs where it is made.
//! assert_eq!(Workflow::new(tasks![fill, add])?.sequential().run(program)?, sum);
//! # Ok::<(), dataflow_framework::WorkflowError>(())
//! ```
//!
//! The compiler checks the data accesses that other systems have to trust: a task that changes an input
//! declared as read-only does not compile, and neither does a program that uses a result before waiting for it.
//!
//! Data and calls belong to a workflow: they panic outside of [`Workflow::run`], and on threads that run neither the
//! program nor a task. In tests, [`Workflow::sequential`] runs each call immediately.
//!
//! # Versions
//!
//! A handle names a *version* of data, which never changes. A call that updates data writes its next version,
//! which the handle then names. So a call never waits for readers of the previous version, and clones of a
//! handle are snapshots. A version that cannot be read any longer is dropped, and its last reader updates it in
//! place, so that usually nothing is copied.
//!
//! # Failures
//!
//! A task fails when it returns an `Err` or panics. Calls that depend on its output do not run, and
//! [`Data::get`] returns its [`Failure`] for all data that depends on it. A program that
//! ends without having received a failure of its calls fails with the first one: none is overlooked.
//!
//! A failed call can be retried, and the calls of a [`group`] can be awaited or cancelled together:
//!
//! ```
//! use std::{io, sync::atomic::{AtomicU32, Ordering}};
//! use dataflow_framework::{Data, Failure, Workflow, group, task, tasks};
//!
//! static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
//!
//! /// Reads a sensor. The connection fails once.
//! #[task(retry = 3, timeout = "10 s")]
//! fn measure(sensor: u32) -> io::Result<u32> {
//!     match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
//!         0 => Err(io::ErrorKind::ConnectionReset.into()),
//!         _ => Ok(20 + sensor),
//!     }
//! }
//!
//! let warmest = Workflow::new(tasks![measure])?.run(|| {
//!     let (calls, values) = group(|| (0..4).map(measure).collect::<Vec<Data<u32>>>());
//!     calls.wait()?;
//!     let values = values.iter().map(|value| Ok(*value.get()?)).collect::<Result<Vec<_>, Failure>>()?;
//!     Ok::<_, Failure>(values.into_iter().max())
//! })?;
//! assert_eq!(warmest, Some(23));
//! # Ok::<(), dataflow_framework::WorkflowError>(())
//! ```
//!
//! A running task can check whether its call is cancelled ([`is_cancelled`]).
//!
//! [`Failure::kind`] distinguishes an error of the task from a panic, a timeout and a cancellation. [`OnFailure`] lists
//! the effects of a failure after the last retry.
//!
//! # Tasks that wait
//!
//! A task that mainly waits is an `async fn`. Its calls occupy no worker:
//!
//! ```
//! use std::time::Duration;
//! use dataflow_framework::{Data, Failure, Workflow, task, tasks};
//!
//! #[task(timeout = "10 s")]
//! async fn later(number: u64) -> u64 {
//!     tokio::time::sleep(Duration::from_millis(1)).await;
//!     number
//! }
//!
//! let sum = Workflow::new(tasks![later])?.workers(1).run(|| {
//!     let calls: Vec<Data<u64>> = (0..100).map(later).collect();
//!     calls.iter().map(|call| call.get().map(|number| *number)).sum::<Result<u64, Failure>>()
//! })?;
//! assert_eq!(sum, 4_950);
//! # Ok::<(), dataflow_framework::WorkflowError>(())
//! ```
//!
//! # On a cluster
//!
//! A function with the attribute [`program`] has a command line ([`cli`]), and runs on all cores (`solve`), on several nodes within one process
//! (`solve --nodes 4`), and on the nodes of a cluster (`submit`), which may join and leave: data of a lost node
//! that is still needed is recomputed by the calls that had written it; data of a leaving node is copied to
//! others first. The program itself may be restarted on another node, where completed calls are not run again;
//! so it has to make the same calls each time. Side effects of tasks and programs, such as writing a file, may
//! happen several times.
//!
//! # Files and external programs
//!
//! A [`File`] is data like any other: a task that takes `&File` gets the path of a file to read, one that takes
//! `&mut File` may rewrite it. [`Run`] runs an external program on files, each time in a directory of its own,
//! and turns its output files into data. [`Data::<File>::publish`](Data::publish) puts a file at a public path.
//!
//! ```
//! use std::io;
//! use dataflow_framework::{Data, File, Run, Workflow, task, tasks};
//!
//! /// Sorts the lines of a file.
//! #[task]
//! fn sort(list: &File) -> io::Result<File> {
//!     Run::new("sort").word("-n").arg(list).stdout_to("sorted")
//! }
//!
//! /// Adds a line to a file.
//! #[task]
//! fn append(list: &mut File, line: String) -> io::Result<()> {
//!     let text = list.read_to_string()?;
//!     list.write(text + &line + "\n")
//! }
//!
//! # let folder = std::env::temp_dir().join(format!("sorted-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let result = folder.join("numbers.txt");
//! Workflow::new(tasks![sort, append])?.run(|| {
//!     let mut list = Data::new(File::new("list", "20\n3\n")?);
//!     append(&mut list, "100".to_owned());
//!     sort(&list).publish(&result)?; // waits for the file, and replaces the previous one atomically
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! })?;
//! assert_eq!(std::fs::read_to_string(&result)?, "3\n20\n100\n");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Options
//!
//! `#[task(priority = 5, retry = 3)]` gives a task [`Options`]; `add::with().priority(9).call(&mut sum, &next)` gives
//! them to one call. `add::now(&mut a, &b)` calls the original function.
//!
//! Some options place calls: `#[task(cores = 4, memory = "2 GiB", needs("blast", "os=linux"))]` declares the
//! resources and features that a call requires of its node, `spread` distributes calls over all nodes in turn,
//! `everywhere` copies their output to all nodes. `limits("licence=2")` limits the calls that run at a time on all nodes
//! together.

#[cfg(any(test, feature = "stores"))]
extern crate self as dataflow_framework;

mod program;
mod task;
mod task_options;
mod options;
mod settings;
mod value;
mod spilled;
mod size;
mod stream;
mod core;
mod encoding;
mod cache;
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
mod isolated;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "cli")]
pub mod cli;
#[doc(hidden)]
pub mod simulation;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(test)]
mod cancelling_tests;
#[cfg(test)]
mod constraints_tests;
#[cfg(test)]
mod declaring_tests;
#[cfg(test)]
mod failing_tests;
#[cfg(test)]
mod free_order_tests;
#[cfg(test)]
mod futures_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod once_tests;
#[cfg(test)]
mod tests;

#[cfg(feature = "cli")]
pub use dataflow_macros::program;
pub use dataflow_macros::task;
pub use dataflow_view as view;

pub use self::{
    array::{Array, Element},
    cluster::{Main, Program, Returned, RunOptions},
    failure::{Failure, FailureKind},
    figures::Figures,
    file::{File, Run},
    isolated::serve_isolated,
    node::{is_cancelled, once_token, time_left},
    options::{OnFailure, Options},
    program::{
        Data, Group, Observe, PublishError, Reduction, Ref, RefMut, Workflow, WorkflowError, barrier,
        commute, group, reduce, surroundings as flow, wait_any,
    },
    settings::Settings,
    task::{DuplicateTaskName, TaskDef, Tasks},
    value::Datum,
};

/// Support for the code that the attribute [`task`] generates. It may change at any time.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "cli")]
    pub use clap;

    #[cfg(feature = "cli")]
    pub use crate::cli::shown;
    pub use crate::{
        failure::Failed,
        invocation::{Invocation, Outputs},
        program::Calling,
        task::{Body, CallFuture, IsTask},
    };
}
