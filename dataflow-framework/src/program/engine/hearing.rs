//! Reports of nodes to the graph.

use super::Engine;
use crate::{
    core::{Graph, Lack, Member},
    ids::{CallId, VersionId},
    node::{News, Report},
    options::Options,
};

impl Engine {
    /// Applies a report of a node to the graph.
    pub(crate) fn hear(&self, graph: &mut Graph, member: Member, news: News) {
        match news {
            News::TakesPart(capacity) => graph.joined(member, capacity),
            News::Holds(held) => held.into_iter().for_each(|held| graph.on_held(member, held)),
            News::Runs(running) => {
                for (call, mark) in running {
                    graph.on_running(member, call, mark);
                }
            }
            News::Remembers(history) => graph.journal().add_history(history),
            News::AllTold | News::Timed(_) => {}
            News::Ended { call, outcome, contents } => {
                graph.ended(call, member, outcome);
                self.keep_small(graph, call, contents);
            }
            News::Unable { call, missing, tried, unchanged } => {
                graph.unable(call, member, missing, &self.members(&tried), &unchanged);
            }
            News::Leaves => graph.on_leaving(member),
            News::Cordon { is_cordoned } => graph.on_cordon(member, is_cordoned),
            News::Returned { call, unchanged } => graph.returned(call, member, &unchanged),
            News::Step(execution, step) => {
                graph.step(member, execution, step, self.executor.tasks.as_deref());
            }
            News::Copied(version) => graph.copied(version, member),
            News::NotCopied { version, tried } if member == Member::HERE => {
                graph.not_brought(version, &self.members(&tried));
            }
            News::NotCopied { version, tried } => {
                graph.not_copied(version, member, &self.members(&tried));
            }
            News::Damaged { version, reason } => graph.on_damaged(version, member, &reason),
            News::HasCopies(versions) => graph.drop_spare_copies(member, versions),
        }
    }

    /// Keeps the small versions that came with the end of a call, if they are needed here.
    fn keep_small(&self, graph: &mut Graph, call: CallId, contents: Vec<(u32, Vec<u8>)>) {
        for (slot, content) in contents {
            let version = VersionId { call, slot };
            if let Some(mark) = graph.lacks_here(version) {
                self.executor.put_small(version, content, mark);
                graph.copied(version, Member::HERE);
            }
        }
    }
}

impl Report for Engine {
    fn tell(&self, news: News) {
        match news {
            News::Timed(timing) => self.timed_on(Member::HERE, timing),
            news => self.change(|graph| self.hear(graph, Member::HERE, news)),
        }
    }

    fn counting(&self, options: Options) -> Options {
        Self::counting(self, options)
    }

    fn lacks(&self, options: &Options) -> Option<Lack> {
        Self::lacks(self, options)
    }
}
