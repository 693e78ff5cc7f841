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

/// Returns the arguments of calls, which combine `partials` if there are any: at least of the first, up to the maximum size
/// and with the same resources.
pub(super) fn arguments(
    order: &Order,
    partials: Option<&Partials>,
    calls: &Range<u64>,
    mut files: Option<&mut Files<'_>>,
) -> Result<Arguments, String> {
    let (mut arguments, mut bytes) = (Vec::new(), 0);
    for index in calls.clone() {
        let localised = match (partials, &mut files) {
            // Before it is read, since it may be large.
            (Some(partials), _)
                if !arguments.is_empty()
                    && partials.bytes(index).saturating_add(bytes) > FRAME_ARGUMENTS_BYTES_MAX =>
            {
                break;
            }
            (Some(partials), _) => Local::Ready(partials.argument(index)?),
            (None, Some(files)) => files.localise(order.space.argument(index)?),
            (None, None) => Local::Ready(order.space.argument(index)?),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        reduction::Reduce,
        space::Space,
        store::{Outcome, Store, Writer},
        testing::{Fixture, fixture},
    };

    /// Returns the number of calls in the first frame that combines 3,000 values of this size, 1,000 in each call.
    fn combinations(bytes: usize) -> usize {
        let Fixture { store, .. } = fixture();
        let key = format!("{:032x}", rand::random::<u128>());
        let writer = Writer::start(store.objects.clone(), format!("{}/test", Store::job(&key))).unwrap();
        let value = RawValue::from_string(format!("{:?}", "x".repeat(bytes))).unwrap();
        let outcomes: Vec<_> = (0..3_000).map(|index| (index, Outcome::Value(value.clone()))).collect();
        let last = writer.put(&outcomes);
        writer.hurry();
        assert!(writer.wait(last, Duration::from_secs(60)));
        let partials = Partials::open(store, &key, 1, 3_000).unwrap();
        let order = Order::new(String::new(), key, Space::Range { from: 0, to: 0 }, Reduce::default());
        match arguments(&order, Some(&partials), &(0..3), None).unwrap() {
            Arguments::Ready(calls) => calls.len(),
            Arguments::Later | Arguments::Failed(_) => 0,
        }
    }

    #[test]
    fn combinations_of_a_frame_are_within_its_maximum_size_or_one() {
        for (bytes, calls) in [(300, 3), (500, 2), (600, 1), (2_000, 1)] {
            assert_eq!(combinations(bytes), calls, "{bytes} bytes");
        }
    }
}
