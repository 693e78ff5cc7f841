//! Byte objects of companions: data of any size that nodes fetch from the nodes that offer it.

use std::{
    any::Any,
    fmt, fs,
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use thiserror::Error;
use tokio::{runtime::Handle, task::JoinHandle};

use super::{
    Desk,
    content::{ObjectContent, ObjectHasher, ObjectName},
};
use crate::id::NodeId;

/// Offers byte objects to other nodes, and fetches theirs. Clones share the objects, and work on any thread.
///
/// An object is named by the BLAKE3 hash and the length of its content, so a fetched content is the named one from
/// every node. Companions send each other names in messages; the content has a lower priority than all messages. Any
/// member of the same release that knows the name of an offered object can fetch it. A node that works on a job alone
/// within one process has no other nodes: its fetches fail.
///
/// A node serves 16 requests and fetches 8 objects at a time, for all its jobs; further transfers wait.
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
    exchange: Option<Arc<dyn Exchange>>,
}

/// An object that other nodes can fetch until this is dropped. Transfers in progress at that time are completed.
#[derive(Debug)]
#[must_use = "the object is offered until this is dropped"]
pub struct Offer {
    name: ObjectName,
    /// Ends the offer when it is dropped; `None` if no node will ask for the object.
    _offer: Option<Box<dyn Any + Send + Sync>>,
}

/// The reasons why an object was not fetched, in total or from one owner.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No owner was named.
    #[error("no known member may have it")]
    NoOwner,
    /// The node does not offer the object.
    #[error("the member does not have it")]
    Unknown,
    /// The node serves its maximum number of requests.
    #[error("the member serves the maximum number of requests")]
    Busy,
    /// The node is not a member, cannot be reached, or did not send the whole object.
    #[error("the transfer was cut off: {0}")]
    CutOff(String),
    /// The node has sent another content.
    #[error("the content does not match its name")]
    Garbled,
    /// The content cannot be written here.
    #[error("the content cannot be stored: {0}")]
    Sink(#[source] io::Error),
    /// The work of this node on the job is over.
    #[error("the work on the job is over")]
    Over,
}

/// Returns the nodes to try.
pub(crate) type Owners = Box<dyn Fn() -> Vec<NodeId> + Send>;

/// A fetch, and the runtime of its node: the connections that a fetch dials outlive the fetch.
pub(crate) type Work<T> = (Handle, Pin<Box<dyn Future<Output = Result<T, FetchError>> + Send>>);

/// The exchange of objects with other nodes.
pub(crate) trait Exchange: fmt::Debug + Send + Sync {
    /// Offers bytes of this name until the result is dropped.
    fn offer(&self, name: ObjectName, content: Bytes) -> Box<dyn Any + Send + Sync>;

    /// Offers a content outside of memory until the result is dropped.
    fn offer_content(&self, name: ObjectName, content: Arc<dyn ObjectContent>) -> Box<dyn Any + Send + Sync>;

    /// # Errors
    /// If the node has given up its seat.
    fn fetch(
        &self,
        name: ObjectName,
        owners: Owners,
        patience: Duration,
    ) -> Result<Work<Vec<u8>>, FetchError>;

    /// # Errors
    /// As [`fetch`](Self::fetch).
    fn fetch_to_file(
        &self,
        name: ObjectName,
        file: fs::File,
        owners: Owners,
        patience: Duration,
    ) -> Result<Work<()>, FetchError>;
}

impl Objects {
    pub(crate) fn new(desk: Arc<Desk>, exchange: Option<Arc<dyn Exchange>>) -> Self {
        Self { desk, exchange }
    }

    /// Offers bytes in memory. Computes their hash on this thread, at about 1 GiB/s.
    pub fn offer(&self, content: Vec<u8>) -> Offer {
        let mut hasher = ObjectHasher::new();
        hasher.add(&content);
        let name = hasher.name();
        Offer { name, _offer: self.exchange.as_ref().map(|exchange| exchange.offer(name, content.into())) }
    }

    /// Offers a file, which must not change until the offer is dropped. Reads it once on this thread to compute its hash;
    /// its content is in memory only in parts. Each offer keeps a file descriptor.
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
        let content = Arc::new(content);
        Offer { name, _offer: self.exchange.as_ref().map(|exchange| exchange.offer_content(name, content)) }
    }

    /// Fetches an object into memory, and verifies it.
    ///
    /// `owners` is called in each round and returns the nodes to try, without this one. If one of them fails, the
    /// next one continues where it stopped. The fetch fails when a round has failed and no byte has been received for
    /// `patience`. An unreachable node takes up to 3 s of a round, and one that stops sending 10 s. Before each
    /// transfer, the fetch waits until fewer than 8 others are in progress; this wait does not count. Dropping the
    /// future stops the transfer.
    ///
    /// # Errors
    /// [`FetchError::Busy`] if an owner was busy, otherwise the error of the last owner; [`FetchError::Over`] once the
    /// node's work on the job is over.
    pub fn fetch(
        &self,
        name: ObjectName,
        owners: impl Fn() -> Vec<NodeId> + Send + 'static,
        patience: Duration,
    ) -> Fetching<Vec<u8>> {
        self.run(|exchange| exchange.fetch(name, Box::new(owners), patience))
    }

    /// Fetches an object into a file, which is empty and open for writing, and verifies the content. Otherwise as
    /// [`fetch`](Self::fetch). The file is not synced.
    ///
    /// Use a new file for each fetch, and remove it if the fetch is dropped or fails: one more block may be written to
    /// it afterwards, on another thread.
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
        self.run(|exchange| exchange.fetch_to_file(name, file, Box::new(owners), patience))
    }

    fn run<T: Send + 'static>(
        &self,
        start: impl FnOnce(&dyn Exchange) -> Result<Work<T>, FetchError>,
    ) -> Fetching<T> {
        let Some(exchange) = &self.exchange else {
            return Fetching(State::Failed(Some(FetchError::NoOwner)));
        };
        let desk = Arc::clone(&self.desk);
        Fetching(match start(&**exchange) {
            Err(error) => State::Failed(Some(error)),
            Ok((runtime, work)) => State::Running(runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = desk.over() => Err(FetchError::Over),
                    fetched = work => fetched,
                }
            })),
        })
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
