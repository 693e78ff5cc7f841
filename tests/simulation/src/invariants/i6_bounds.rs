//! I6: every queue, message, batch, retry and wait is bounded.
//!
//! A node checks its own state after every event; this module checks the tree and the messages.

use zk::Op;

use super::{Facts, Invariant, Seen, place};

pub(super) struct EverythingIsBounded;

/// The maximum number of transaction ids of a node: the last committed transaction, and the one that follows.
const TXNS_MAX: usize = 2;
/// The maximum number of letters in a mailbox: a stale check may admit a few more.
const MAIL_MAX: u32 = zk::mail::MAILBOX_LETTERS_MAX + 64;
/// The maximum number of copies of a large message that wait for the same connection.
const COPIES_MAX: usize = 1;
/// The minimum size of a large message, in bytes.
const LARGE_BYTES: usize = 64 << 10;

impl Invariant for EverythingIsBounded {
    fn name(&self) -> &'static str {
        "I6 (bounds)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::NodeBroken { what } => Err((*what).to_owned()),
            Seen::Sent { from, payload, .. } if payload.len() > facts.message_bytes_max => {
                Err(format!("{from} has sent {} bytes", payload.len()))
            }
            Seen::Waits { from, to, copies, bytes } if *bytes > LARGE_BYTES && *copies > COPIES_MAX => {
                Err(format!("{bytes} bytes wait {copies} times for the way from {from} to {to}"))
            }
            Seen::Wrote { ops, servers, .. } => {
                for op in *ops {
                    let Op::Create { path, .. } = op else { continue };
                    let Some(at) = place(&facts.cluster, path) else { continue };
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    match at.rest[..] {
                        ["txns", txn] => {
                            let node = txn.split('-').next().unwrap_or_default();
                            let its =
                                servers.names(folder).iter().filter(|name| name.starts_with(node)).count();
                            if its > TXNS_MAX {
                                return Err(format!("{node} has {its} transaction ids"));
                            }
                        }
                        ["mail", _, _] if servers.count(folder).is_some_and(|count| count > MAIL_MAX) => {
                            return Err(format!("a mailbox overflows: {folder}"));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
