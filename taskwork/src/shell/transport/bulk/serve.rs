//! The owner's side of a fetch.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::time;

use super::{
    super::{Hub, limits::PIECE_BYTES},
    Refusal,
};
use crate::{
    id::NodeId,
    wire::{bulk::ASK_BYTES_MAX, codec},
};

/// The error code of a stream with an invalid request or an incomplete object.
const GIVEN_UP: u32 = 1;

/// A lower priority than that of messages of any size.
const BULK_PRIORITY: i32 = -1;

/// Serves one request of a member. Returns when the fetcher has all bytes, has dropped the fetch, or accepts no
/// data within the time limit.
pub(in super::super) async fn serve(hub: &Hub, to: NodeId, mut answer: SendStream, mut question: RecvStream) {
    if let Err(reason) = answered(hub, to, &mut answer, &mut question).await {
        tracing::debug!(node = %hub.me, %to, %reason, "an object was not sent completely");
        // Without the reset, the object would seem to be complete. Fails if the stream has already ended.
        let _ = answer.reset(GIVEN_UP.into());
    }
}

async fn answered(
    hub: &Hub,
    to: NodeId,
    stream: &mut SendStream,
    question: &mut RecvStream,
) -> Result<(), Refusal> {
    let question = in_time(hub, question.read_to_end(ASK_BYTES_MAX)).await?;
    let (answer, serving) = hub.bulk.answer(&question)?;
    // Fails only if the stream is closed, in which case the next write fails as well.
    let _ = stream.set_priority(BULK_PRIORITY);
    let answer = codec::encode(&answer).map_err(Refusal::because)?;
    in_time(hub, stream.write_chunk(Bytes::from(answer))).await?;
    let Some(mut serving) = serving else {
        return stream.finish().map_err(Refusal::because);
    };
    loop {
        let read = in_time(hub, serving.reader.next(PIECE_BYTES)).await;
        // The next request is served from another offer of this object, if there is one.
        let read = read.inspect_err(|_| hub.bulk.objects.move_back(&serving.object));
        let Some(slice) = read? else { break };
        let bytes = slice.len() as u64;
        in_time(hub, stream.write_chunk(slice)).await?;
        hub.bulk.sent.fetch_add(bytes, Relaxed);
    }
    stream.finish().map_err(Refusal::because)?;
    // Written data occupies memory until it is acknowledged, so the slot is released only then.
    if in_time(hub, stream.stopped()).await?.is_none() {
        serving.on_taken(to);
    }
    Ok(())
}

/// Performs one step of a transfer within the fetcher's time limit.
async fn in_time<T, E: fmt::Display>(
    hub: &Hub,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, Refusal> {
    match time::timeout(hub.limits.bulk_progress, step).await {
        Ok(done) => done.map_err(Refusal::because),
        Err(_) => Err(Refusal::because("timeout while waiting for the peer")),
    }
}
