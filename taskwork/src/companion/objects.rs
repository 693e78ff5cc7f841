//! Byte objects of companions: data of any size that nodes fetch from the nodes that offer it.

use std::{
    fmt, fs,
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::Desk;
use crate::{
    id::NodeId,
    shell::transport::bulk::{
        self, Blocking, Bulk, FetchError, FileSink, Object, ObjectContent, ObjectHasher, Sink, WeakBulk,
    },
    wire::bulk::ObjectName,
};

/// Offers byte objects to other nodes, and fetches theirs. Clones share the objects, and work on any thread.
///
/// An object is named by the BLAKE3 hash and the length of its content, so a fetched content is the named one, whoever
/// has sent it. Companions send each other names in messages; the content has a lower priority than all messages. Any
/// member of the same release that knows the name of an offered object can fetch it. A node that works on a job alone
/// within one process has no other nodes: its fetches fail.
///
/// A node serves 16 requests and fetches 8 objects at a time, for all its jobs; further fetches wait.
///
/// ```
/// use std::time::Duration;
/// use taskwork::companion::{CompanionContext, CompanionEvent, FetchError, ObjectName};
///
/// /// Fetches an index from the node that has it, and becomes another owner of it.
/// async fn share(mut cx: CompanionContext, index: Option<&std::path::Path>) -> Result<(), String> {
///     let (objects, messenger) = (cx.objects().clone(), cx.messenger().clone());
///     let mut offer = index.map(|path| objects.offer_file(path)).transpose().map_err(|error| error.to_string())?;
///     while let Some(event) = cx.next().await {
///         match event {
///             CompanionEvent::Joined { node } => {
///                 if let Some(offer) = &offer {
///                     let _ = messenger.send(node, offer.name().to_string().into_bytes());
///                 }
///             }
///             CompanionEvent::Message { from, bytes } if offer.is_none() => {
///                 let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
///                 let name: ObjectName = text.parse().map_err(|_| "this is no name")?;
///                 match objects.fetch(name, move || vec![from], Duration::from_secs(10)).await {
///                     Ok(content) => offer = Some(objects.offer(content)),
///                     Err(FetchError::Over) => break,
///                     Err(error) => eprintln!("{name}: {error}"),
///                 }
///             }
///             _ => {}
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Objects {
    desk: Arc<Desk>,
    /// `None` for a node that will never have a peer.
    bulk: Option<WeakBulk>,
}

/// An object that other nodes can fetch until this is dropped. Transfers in progress at that time are completed.
#[derive(Debug)]
#[must_use = "the object is offered until this is dropped"]
pub struct Offer {
    name: ObjectName,
    /// `None` if no node will ask for it.
    _offer: Option<bulk::Offer>,
}

impl Objects {
    pub(crate) fn new(desk: Arc<Desk>, bulk: Option<&Bulk>) -> Self {
        Self { desk, bulk: bulk.map(Bulk::downgrade) }
    }

    /// Offers bytes in memory. Computes their hash on this thread, at about 1 GiB/s.
    pub fn offer(&self, content: Vec<u8>) -> Offer {
        self.offer_object(Object::new([content.into()]))
    }

    /// Offers a file, which must not change until the offer is dropped. Reads it once on this thread to compute its hash;
    /// its content is in memory only in parts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn offer_file(&self, path: &Path) -> io::Result<Offer> {
        let file = fs::File::open(path)?;
        Ok(self.offer_content(ObjectHasher::name_of(&file)?, file))
    }

    /// Offers a content that is read in parts while it is sent, for example a [`File`](fs::File). The name is not
    /// verified here: fetchers reject a content that differs from it.
    pub fn offer_content(&self, name: ObjectName, content: impl ObjectContent) -> Offer {
        self.offer_object(Object::elsewhere(name, Arc::new(content)))
    }

    fn offer_object(&self, object: Object) -> Offer {
        Offer { name: object.name(), _offer: self.bulk.as_ref().map(|bulk| bulk.offer(object)) }
    }

    /// Fetches an object into memory, and verifies it.
    ///
    /// `owners` is called in each round and returns the nodes to try, without this one. If one of them fails, the
    /// next one continues where it stopped. The fetch fails when a round has failed and no byte has been received for
    /// `patience`. An unreachable node takes up to 3 s of a round, and one that stops sending 10 s. Before that, the
    /// fetch waits until fewer than 8 others are in progress. Dropping the future stops the transfer.
    ///
    /// # Errors
    /// The error of the last owner; [`FetchError::Over`] once the node's work on the job is over.
    pub fn fetch(
        &self,
        name: ObjectName,
        owners: impl Fn() -> Vec<NodeId> + Send + 'static,
        patience: Duration,
    ) -> Fetching<Vec<u8>> {
        self.fetch_into(|_| Vec::new(), std::convert::identity, name, owners, patience)
    }

    /// Fetches an object into a file, which is empty and open for writing, and verifies the content. Otherwise as
    /// [`fetch`](Self::fetch). The file is not synced.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); [`FetchError::Sink`] if the file cannot be written. The file then has an incomplete
    /// content.
    pub fn fetch_to_file(
        &self,
        name: ObjectName,
        file: fs::File,
        owners: impl Fn() -> Vec<NodeId> + Send + 'static,
        patience: Duration,
    ) -> Fetching<()> {
        self.fetch_into(|blocking| FileSink::new(file, blocking), drop, name, owners, patience)
    }

    fn fetch_into<S: Sink + Sync + 'static, T: Send + 'static>(
        &self,
        sink: impl FnOnce(Blocking) -> S,
        finish: fn(S) -> T,
        name: ObjectName,
        owners: impl Fn() -> Vec<NodeId> + Send + 'static,
        patience: Duration,
    ) -> Fetching<T> {
        let Some(bulk) = &self.bulk else { return Fetching(State::Failed(Some(FetchError::NoOwner))) };
        let Some(bulk) = bulk.upgrade() else { return Fetching(State::Failed(Some(FetchError::Over))) };
        let (desk, sink) = (Arc::clone(&self.desk), sink(bulk.blocking()));
        // On the node's runtime: the connections that a fetch dials outlive the fetch.
        let runtime = bulk.runtime().clone();
        Fetching(State::Running(runtime.spawn(async move {
            tokio::select! {
                biased;
                () = desk.over() => Err(FetchError::Over),
                fetched = bulk.fetch(name, sink, owners, patience) => fetched.map(finish),
            }
        })))
    }
}

impl Offer {
    /// Returns the name by which other nodes fetch the object.
    pub fn name(&self) -> ObjectName {
        self.name
    }
}

/// The result of a fetch, as a future for any runtime. Dropping it stops the transfer.
#[must_use = "the fetch stops when this is dropped"]
pub struct Fetching<T>(State<T>);

enum State<T> {
    Running(JoinHandle<Result<T, FetchError>>),
    /// The error is taken by the first poll.
    Failed(Option<FetchError>),
}

impl<T> Future for Fetching<T> {
    type Output = Result<T, FetchError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Running(task) => Poll::Ready(match ready!(Pin::new(task).poll(cx)) {
                Ok(fetched) => fetched,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime of the node shuts down.
                Err(_) => Err(FetchError::Over),
            }),
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or(FetchError::Over))),
        }
    }
}

impl<T> Drop for Fetching<T> {
    fn drop(&mut self) {
        if let State::Running(task) = &self.0 {
            task.abort();
        }
    }
}

impl<T> fmt::Debug for Fetching<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetching").finish_non_exhaustive()
    }
}
