//! The arguments of the calls of a frame.

use std::ops::Range;

use serde_json::value::RawValue;

use crate::{
    batch::combine::Partials,
    order::Order,
    resource::{Files, Local},
};

/// The maximum size of the arguments of a frame if there are several, in bytes.
const FRAME_ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// The arguments of calls.
pub(super) enum Arguments {
    Ready(Vec<(u64, Box<RawValue>)>),
    /// Resources of the first call are being fetched.
    Later,
    /// Resources of the first call cannot be fetched, for this reason.
    Failed(String),
}

/// Returns the arguments of calls that combine results, at least of the first, up to the maximum size.
fn combined(partials: &Partials, calls: &Range<u64>) -> Result<Arguments, String> {
    let (mut arguments, mut bytes) = (Vec::new(), 0);
    for index in calls.clone() {
        if bytes > FRAME_ARGUMENTS_BYTES_MAX {
            break;
        }
        let argument = partials.argument(index)?;
        bytes += argument.get().len();
        arguments.push((index, argument));
    }
    Ok(Arguments::Ready(arguments))
}

/// Returns the arguments of calls, at least of the first, up to the maximum size and with the same resources.
pub(super) fn arguments(
    order: &Order,
    partials: Option<&Partials>,
    calls: &Range<u64>,
    mut files: Option<&mut Files<'_>>,
) -> Result<Arguments, String> {
    if let Some(partials) = partials {
        return combined(partials, calls);
    }
    let (mut arguments, mut bytes) = (Vec::new(), 0);
    for index in calls.clone() {
        let argument = order.space.argument(index)?;
        let localised = match &mut files {
            Some(files) => files.localise(argument),
            None => Local::Ready(argument),
        };
        let argument = match localised {
            Local::Ready(argument) => argument,
            _ if !arguments.is_empty() => break,
            Local::Later => return Ok(Arguments::Later),
            Local::Failed(reason) => return Ok(Arguments::Failed(reason)),
        };
        bytes += argument.get().len();
        if bytes > FRAME_ARGUMENTS_BYTES_MAX && !arguments.is_empty() {
            break;
        }
        arguments.push((index, argument));
    }
    Ok(Arguments::Ready(arguments))
}
