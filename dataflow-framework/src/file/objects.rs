//! Files in stores of objects. Built-in tasks fetch and write them, so that placement, lineage, retries and the journal apply
//! to them as to all calls.

use std::{fs, io};

use taskwork_store::{Object, Tag};

use super::{File, is_executable, trouble};
use crate::{Data, TaskDef, program::is_publishing_restricted, task, tasks};

/// The built-in tasks, which every program may call.
pub(crate) const TASKS: [&TaskDef; 3] = tasks![look_up_object, fetch_object, publish_object];

/// Returns the version of an object that the program uses.
#[task(nondeterministic)]
fn look_up_object(uri: String) -> io::Result<Tag> {
    let object = Object::new(&uri)?;
    object.tag().inspect_err(|error| note(&object, error))
}

/// Copies an object to this node.
#[task]
pub(super) fn fetch_object(uri: String, tag: &Tag) -> io::Result<File> {
    let object = Object::new(&uri)?;
    let file = File::nothing(object.name())?;
    let mut to = fs::File::create_new(file.path()).map_err(|error| file.cannot("created", &error))?;
    object.fetch(tag, &mut to).inspect_err(|error| note(&object, error))?;
    if let Some(path) = object.local_path() {
        file.set_executable(fs::metadata(path).is_ok_and(|metadata| is_executable(&metadata)))?;
    }
    Ok(file)
}

/// Writes a file into a store, and returns its size.
#[task(effect)]
fn publish_object(uri: String, file: &File) -> io::Result<u64> {
    let object = Object::new(&uri)?;
    if let Some(path) = object.local_path() {
        file.publish(path)?;
        return file.len();
    }
    if is_publishing_restricted() {
        let reason = format!("{uri} cannot be published: its node was started with --publish-to");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let mut content = file.reader()?.into_inner();
    object.put(&mut content).inspect_err(|error| note(&object, error))?;
    file.len()
}

/// Records an error that other nodes may not have: a missing file, missing credentials, an unreachable server. An object in a
/// store is missing for all nodes.
fn note(object: &Object, error: &io::Error) {
    if object.local_path().is_some() || error.kind() != io::ErrorKind::NotFound {
        trouble::note(error);
    }
}

impl File {
    /// Uses an object of a store as a file: `s3://BUCKET/NAME`, `gs://BUCKET/NAME`, `az://CONTAINER/NAME`, `http://HOST/PATH`,
    /// `https://HOST/PATH` or `file:///PATH` (see [`Object`]). A node near its readers fetches it. Only the feature `stores`
    /// has this.
    ///
    /// Its size and version are looked up once. If the object has changed before it is fetched, also by a node that fetches it
    /// again after a loss, its readers fail. If a file at `file:///PATH` is missing or differs on a node, another node copies
    /// it. Credentials come from the environment of each node, such as
    /// `AWS_ACCESS_KEY_ID`; they are not in arguments, journals or logs.
    ///
    /// A missing object, or an invalid URI, is a failure of the data.
    ///
    /// # Panics
    /// Panics outside of a workflow.
    ///
    /// # Examples
    /// ```
    /// use dataflow_framework::{Failure, File, Workflow, tasks};
    ///
    /// let bytes = Workflow::new(tasks![])?.run(|| {
    ///     let accounts = File::at("file:///etc/passwd");
    ///     Ok::<_, Failure>(accounts.get()?.len().unwrap_or(0))
    /// })?;
    /// assert!(bytes > 0);
    /// # Ok::<(), dataflow_framework::WorkflowError>(())
    /// ```
    pub fn at(uri: impl Into<String>) -> Data<Self> {
        let uri = uri.into();
        let tag = look_up_object(uri.clone());
        fetch_object(uri, &tag)
    }
}

impl Data<File> {
    /// Writes the file to an object of a store once it is available, as [`File::at`] reads it, on a node near the file. The
    /// object is complete or absent; a web server may show an incomplete one. A previous object is replaced. The result is its
    /// size, in bytes. Only the feature `stores` has this.
    ///
    /// It is a call of an [`effect`](crate::Options::effect): a completed one is not repeated. If its node is lost before the
    /// end, it is repeated with the same content. Bucket rules should remove the incomplete uploads of lost nodes. A path
    /// after `file://` is written as by [`File::publish`]. Web servers take up to 256 MiB.
    ///
    /// # Panics
    /// Panics outside of a workflow.
    pub fn publish_to(&self, uri: impl Into<String>) -> Data<u64> {
        publish_object(uri.into(), self)
    }
}
