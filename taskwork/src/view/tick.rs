//! Computing the displayed state at a tick.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use zk::{job::JobRecord, membership::Member};

use super::{
    JobAbout, MOMENTS_MAX, MemberNow, Moment, MomentKind, NodeNow, Shown, Stage, View,
    frozen::Frozen,
    raw::{JOBS_MAX, Raw, RawJob},
    stages,
    sums::Standing,
};

/// The number of finished jobs with nodes: the latest ones.
const WITH_NODES_MAX: usize = 10;
/// The number of finished jobs with a history: the latest ones.
const WITH_SERIES_MAX: usize = 50;
/// The maximum number of removed jobs that are remembered.
const GONE_MAX: usize = 4_096;
/// The time after a node's departure at which it is classified as left or lost, in milliseconds: its clean leave may be
/// read later than its departure.
const DEPARTED_MS: u64 = 300;
/// The time after an outage within which nodes that work report again, in milliseconds.
const REPORTED_MS_MAX: u64 = 10_000;
/// The number of ticks after which it is classified at the latest, independently of the clock.
const DEPARTED_TICKS: u32 = 2;

impl View {
    /// Makes all applied events visible.
    pub(super) fn tick(&mut self, at_ms: u64) {
        self.seq += 1;
        self.cluster.at_ms = at_ms.max(self.cluster.at_ms);
        let is_silent = self.cluster.silent_since_ms.is_some();
        // The costs need the departed members and the changed jobs, which the next steps clear.
        self.costs.tick(self.seq, self.cluster.at_ms, &self.raw, is_silent, !self.is_whole_shown);
        // Before everything was read, and during an outage, there is no measurement.
        if self.is_whole && !is_silent {
            self.utilisation.tick(self.seq, self.cluster.at_ms, &self.raw);
        }
        let mut moments = mem::take(&mut self.outage_moments);
        self.arrivals(&mut moments);
        let mut gone = self.departures(&mut moments);
        self.show_members(&mut moments);
        self.forget_jobs();
        self.show_jobs(&mut moments);
        self.forget_nodes();
        if *self.raw.warnings.all() != self.warnings.1 {
            self.warnings = (self.seq, self.raw.warnings.all().clone());
        }
        moments.sort();
        for (at_ms, what, name) in moments {
            let member = gone.remove(&name);
            if self.moments.len() >= MOMENTS_MAX {
                self.moments.pop_front();
            }
            self.moments.push_back(Moment { seq: self.seq, at_ms, what, name, member });
        }
        self.cluster_shown = self.cluster.clone();
        self.is_whole_shown = self.is_whole;
    }

    fn arrivals(&mut self, moments: &mut Vec<(u64, MomentKind, String)>) {
        let arrived = mem::take(&mut self.raw.arrived);
        // The nodes found by the initial read joined earlier, at an unknown time.
        for (node, at_ms) in arrived.into_iter().filter(|_| self.is_whole_shown) {
            self.cluster.nodes_joined += 1;
            moments.push((at_ms, MomentKind::Joined, node));
        }
    }

    /// Classifies the departed nodes. Returns their records.
    fn departures(
        &mut self,
        moments: &mut Vec<(u64, MomentKind, String)>,
    ) -> BTreeMap<String, Frozen<Member>> {
        let mut lost: BTreeSet<String> = BTreeSet::new();
        if !self.raw.departed.is_empty() {
            for job in self.raw.jobs.values() {
                lost.extend(job.lost(&self.raw));
                lost.extend(job.lost_before().map(str::to_owned));
            }
        }
        let (mut still, mut gone) = (BTreeMap::new(), BTreeMap::new());
        for (node, mut departed) in mem::take(&mut self.raw.departed) {
            departed.ticks += 1;
            let gone_for_ms = self.cluster.at_ms.saturating_sub(departed.at_ms);
            if departed.ticks < DEPARTED_TICKS && gone_for_ms < DEPARTED_MS {
                still.insert(node, departed);
                continue;
            }
            let what = if lost.contains(&node) { MomentKind::Lost } else { MomentKind::Left };
            let counter = match what {
                MomentKind::Lost => &mut self.cluster.nodes_lost,
                _ => &mut self.cluster.nodes_left,
            };
            *counter += 1;
            gone.extend(departed.member.map(|member| (node.clone(), member)));
            moments.push((departed.at_ms, what, node));
        }
        self.raw.departed = still;
        gone
    }

    fn show_members(&mut self, moments: &mut Vec<(u64, MomentKind, String)>) {
        let mut leads: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (job, node) in self.raw.leaders() {
            leads.entry(node).or_default().push(job.to_owned());
        }
        for (name, joined) in &self.raw.members {
            let now = MemberNow {
                member: joined.member.clone(),
                since_ms: joined.since_ms,
                leads: leads.remove(name.as_str()).unwrap_or_default(),
                draining: self.raw.draining.contains(name),
                cordoned: self.raw.cordoned.contains(name),
            };
            let known = self.members.get(name);
            // Nodes that were cordoned before the observation are no event.
            let was_cordoned = known.map_or(!self.is_whole_shown && now.cordoned, |known| known.cordoned);
            if now.cordoned != was_cordoned {
                let what = if now.cordoned { MomentKind::Cordoned } else { MomentKind::Uncordoned };
                moments.push((self.cluster.at_ms, what, name.clone()));
            }
            if known.is_none_or(|known| **known != now) {
                self.members.set(self.seq, name, Frozen::new(now));
            }
        }
        let members = &self.raw.members;
        self.members.retain(self.seq, |name| members.contains_key(name));
    }

    /// Forgets the earliest of too many jobs.
    fn forget_jobs(&mut self) {
        let surplus = self.raw.jobs.len().saturating_sub(JOBS_MAX);
        let over = self.raw.jobs.iter().filter(|(_, job)| job.is_over()).map(|(id, _)| id);
        let earliest: Vec<String> = over.chain(self.raw.jobs.keys()).take(surplus).cloned().collect();
        for id in earliest {
            self.raw.jobs.remove(&id);
        }
    }

    /// Forgets the nodes of jobs that were over long ago. Called after the jobs were shown, so that their summaries
    /// stay.
    fn forget_nodes(&mut self) {
        let over = self.raw.jobs.iter_mut().rev().filter(|(_, job)| job.is_over());
        for (place, (id, job)) in over.enumerate() {
            let Some(shown) = self.jobs.get_mut(id).filter(|_| self.kept.as_ref() != Some(id)) else {
                continue;
            };
            if place >= WITH_NODES_MAX && !job.reports.is_empty() {
                job.forget_nodes();
                shown.nodes.retain(self.seq, |_| false);
            }
            if place >= WITH_SERIES_MAX {
                shown.series.clear(self.seq);
            }
        }
    }

    fn show_jobs(&mut self, moments: &mut Vec<(u64, MomentKind, String)>) {
        for job in self.raw.jobs.values_mut() {
            // A job that runs again is summed up again.
            job.forgotten &= job.is_over() || job.record.is_none();
        }
        // The costs of members are known only once they were read, which comes last.
        let is_whole_now = self.is_whole && !self.is_whole_shown;
        let jobs: Vec<_> = self.raw.jobs.iter().filter(|(_, job)| job.exists).collect();
        let records: Vec<_> = jobs.iter().map(|(id, job)| (id.as_str(), job.record.as_deref())).collect();
        let members: Vec<_> =
            self.raw.members.values().filter_map(|joined| joined.member.as_deref()).collect();
        let leaders = self.raw.leaders();
        let stages = stages(&records, &members, &self.raw.cordoned, &leaders, self.cluster.at_ms);
        for ((id, job), (stage, missing)) in jobs.into_iter().zip(stages) {
            let shown = self.jobs.entry(id.clone()).or_default();
            if !stage.is_open() && !job.dirty && shown.about.0 > 0 && !is_whole_now {
                continue;
            }
            let leader = leaders.get(id.as_str()).map(|node| (*node).to_owned());
            let standing = Standing { stage, missing, leader, cost: self.costs.of_job(id, job, &self.raw) };
            let about = if job.forgotten && shown.about.0 > 0 {
                job.about_forgotten(standing, &shown.about.1)
            } else {
                shown.show_nodes(self.seq, job, &self.raw);
                job.about(&self.raw, standing, &shown.series.series)
            };
            let change = change_of_stage(&shown.about, stage, self.is_whole_shown);
            moments.extend(change.map(|what| (self.cluster.at_ms, what, id.clone())));
            if has_other_share(shown.about.1.record.as_deref(), job.record.as_deref()) {
                moments.push((self.cluster.at_ms, MomentKind::JobShare, id.clone()));
            }
            let has_stopped = stage != Stage::Running && shown.about.1.stage == Stage::Running;
            // During an outage, the last known state is not a measurement.
            let is_silent = self.cluster.silent_since_ms.is_some();
            // After it, the work since the last report is spread over the whole outage.
            let is_stale = self.cluster.at_ms < self.back_ms + REPORTED_MS_MAX
                && shown.series.series.points.last().is_some_and(|last| last.worked == about.figures.worked);
            let is_measured = stage == Stage::Running && !is_silent && !is_stale;
            if is_measured || has_stopped {
                shown.series.push(self.seq, about.point(self.cluster.at_ms));
            }
            shown.set_about(self.seq, about);
        }
        for job in self.raw.jobs.values_mut() {
            job.dirty = false;
        }
        let there = |id: &String| self.raw.jobs.get(id).is_some_and(|job| job.exists);
        let gone: Vec<String> = self.jobs.keys().filter(|id| !there(id)).cloned().collect();
        for id in gone {
            self.jobs.remove(&id);
            if self.jobs_gone.len() >= GONE_MAX
                && let Some((forgotten, _)) = self.jobs_gone.pop_front()
            {
                self.jobs_forgotten = forgotten;
            }
            self.jobs_gone.push_back((self.seq, id));
        }
    }
}

/// Returns whether a user has changed the share of a job since it was shown.
fn has_other_share(shown: Option<&JobRecord>, now: Option<&JobRecord>) -> bool {
    shown.zip(now).is_some_and(|(shown, now)| shown.share != now.share)
}

/// Returns the event for a change of a job's stage, if any. `known` is the displayed summary, and the tick of its last
/// change; `is_new` is whether a job that was not shown before is new.
fn change_of_stage(known: &(u64, Frozen<JobAbout>), stage: Stage, is_new: bool) -> Option<MomentKind> {
    let (since, about) = known;
    // The stage of a job before the observation is unknown.
    let was = (*since > 0).then_some(about.stage);
    match (was, stage) {
        (Some(was), now) if was == now => None,
        (None, Stage::Running) if !is_new => None,
        (_, Stage::Running) => Some(MomentKind::JobRuns),
        (Some(was), now) if was.is_open() && !now.is_open() => Some(MomentKind::JobOver),
        _ => None,
    }
}

impl Shown {
    fn show_nodes(&mut self, seq: u64, job: &RawJob, raw: &Raw) {
        let lost = job.lost(raw);
        for (node, report) in &job.reports {
            let state = job.state_of(node, raw, &lost);
            let is_known = self
                .nodes
                .get(node)
                .is_some_and(|known| known.state == state && known.report.is_same(report));
            if !is_known {
                self.nodes.set(seq, node, Frozen::new(NodeNow { state, report: report.clone() }));
            }
        }
        self.nodes.retain(seq, |node| job.reports.contains_key(node));
    }
}
