/* The ledger: tasks go from node to node, any node may die, and what stands in ZooKeeper is always the whole.
 *
 *   victim X                                thief Y
 *     Grant(g) ─────────────────────────▶   begins at once; what comes of it is tentative, with basis g
 *     cuts its pool, and flushes in one write:
 *       held/X without the tasks of g,
 *       transit/X-g~Y with them
 *     Confirmed(g) ─────────────────────▶   or sees transit/X-g~Y. Its next flush takes the basis in: it
 *                                           deletes transit/X-g~Y and writes held/Y and the completions, in
 *                                           one write
 *     Void(g) ──────────────────────────▶   or sees that X is gone and transit/X-g~Y not there: drops what is
 *                                           of that basis, and declares void what it gave on of it
 *
 * The work is three units, which node 0 holds at first. Three nodes give each other GRANTS grants, in chains
 * and in circles, also of tentative work; a thief accepts or refuses. Each may die at any moment; when all
 * are dead another node comes. A flush has three steps: the cut is taken, it is written, the node learns of
 * it; in between the node goes on with its other work. Who has nothing claims what the dead have left: held/,
 * and transit/ addressed to them. What a node has claimed stands in transit/<node>-c~<node> (here `claimed`)
 * until its next flush.
 *
 * The network is a set of messages that only grows: what was sent arrives at any time, more than once, or
 * never. Who lives repeats a message until it is answered. Of the dead a late copy may arrive, until the
 * faults cease (`quiet`): then nobody dies, nothing is given, and no late copy arrives any more.
 *
 * Left out, since it adds no state that differs: acknowledgements, which only end repetitions (handover.pml);
 * toggles, and what makes a transaction count once (accounting.pml); parked tasks, which are like what the
 * dead have held; a clean leave, which is a flush with nothing held, and then a death. A completion is seen
 * at the cut that contains it: before, its unit is one that is not given any more. Of several units the
 * lowest are given, one or all, and the highest are completed. The first grant is to the next node.
 *
 * Asserted: after every write each unit stands in held/ or transit/, or its completion is committed, and that
 * once (I10); a flush finds what it deletes; and when nobody can move after the faults, all is complete, and
 * no thief waits to know about its basis. Every step uses something up, so every run ends there. All states
 * are searched. Checked by tests/scenarios/models.rs, also with each of these bugs, which must be found.
 *
 *   BUG_NOTRANSIT what is given is no longer in held/, and not in transit/ either
 *   BUG_MEMBER    what living nodes hold, or are given, is claimed
 *   BUG_FENCE     a flush is written although its node is no member any more
 *   BUG_EARLY     tentative work is flushed before its basis is confirmed
 *   BUG_VOID      what was given on of a void basis is not void
 *   BUG_SILENT    nobody says that a grant is void
 *   BUG_TWICE     a basis is taken in, and its transit/ stays
 *   BUG_TAKEBACK  what a lost thief had is taken back, although its transit/ is being written, or is there
 *   BUG_LATE      a basis is void if its transit/ is not there, even if the victim lives
 *   BUG_FORGET    a grant is repeated until it is written, instead of until it is also acknowledged
 *   BUG_BOTH      a late grant is accepted while its transit/ is being claimed
 */

#define ALL 7
#define GRANTS 3
#define NODES 4
/* The node that comes when the others are dead. */
#define LATE 3
/* As the basis of a grant: none, its tasks are firm. */
#define FIRM GRANTS

/* Of a grant, on the victim: unwritten; in a cut; written; void. */
#define UNUSED 0
#define OPEN 1
#define CUT 2
#define WRITTEN 3
#define VOID 4
/* On the thief. */
#define UNHEARD 0
#define TENTATIVE 1
#define CONFIRMED 2
#define TAKEN 3 /* in a cut */
#define REFUSED 4
#define CLAIMING 5
#define GONE 6 /* the thief is dead */
/* On both: nothing comes of it any more. */
#define OVER 7

/* What stands in ZooKeeper, as sets of units. `claimed` is transit/<node>-c~<node>. */
bool member[NODES];
byte held[NODES], claimed[NODES];
byte done;
bool transit[GRANTS];

/* The grants: who gave what to whom, and of which basis. */
byte next;
byte from[GRANTS], to[GRANTS], units[GRANTS], basis[GRANTS];
byte victim[GRANTS], thief[GRANTS];

/* What the nodes have in memory: what is firm, and what is tentative, of each basis, on its thief. */
byte firm[NODES], tentative[GRANTS];

/* A node's transaction: none; a flush that is not written yet; one that is, which the node does not know; a
 * claim. And the cut of a flush. */
#define NONE 0
#define FLUSH 1
#define UNKNOWN 2
#define CLAIM 3
byte transaction[NODES], cut_held[NODES], cut_complete[NODES];

bool quiet = false;

hidden byte i, all, who;

#define lowest(set) (set & 1 -> 1 : (set & 2 -> 2 : set))
#define highest(set) (set & 4 -> 4 : (set & 2 -> 2 : set))
#define other(n, k) ((n + k) % LATE)
#define idle(n) (member[n] && transaction[n] == NONE)
#define hungry(n) (idle(n) && firm[n] == 0)
#ifdef BUG_MEMBER
#define gone(n) true
#else
#define gone(n) (!member[n])
#endif

/* I10. */
inline add(part) { assert((all & part) == 0); all = all | part }
inline partition() {
	all = done;
	i = 0;
	do :: i < NODES -> add(held[i]); add(claimed[i]); i++ :: else -> break od;
	i = 0;
	do
	:: i < GRANTS -> if :: transit[i] -> add(units[i]) :: else fi; i++
	:: else -> break
	od;
	assert(all == ALL)
}

/* Nothing comes of a grant any more; what is equal looks equal. */
inline over(g) {
	from[g] = 0; to[g] = 0; units[g] = 0; basis[g] = 0; tentative[g] = 0;
	victim[g] = OVER; thief[g] = OVER
}

/* Claims what stands in held/ or transit/<node>-c~<node>; the transit of a grant. */
#define can_claim(what, n) (gone(n) && what[n] != 0)
inline claim_from(n, source) {
	who = source;
	source = 0;
	claimed[n] = claimed[n] | who;
	firm[n] = firm[n] | who;
	partition()
}
inline claim_transit(n, g) {
	assert(transit[g]);
	transit[g] = false;
	claimed[n] = claimed[n] | units[g];
	firm[n] = firm[n] | units[g];
	partition();
	over(g)
}

/* Gives tasks of a basis. */
inline give(n, origin, pool) {
	if
	:: member[other(n, 1)] -> to[next] = other(n, 1)
	:: member[other(n, 2)] && next > 0 -> to[next] = other(n, 2)
	fi;
	if
	:: units[next] = lowest(pool)
	:: pool != lowest(pool) -> units[next] = pool
	fi;
	from[next] = n;
	basis[next] = origin;
	pool = pool & ~units[next];
	victim[next] = OPEN;
	next++
}
#define can_give(n, pool) (!quiet && next < GRANTS && pool != 0 \
	&& (member[other(n, 1)] || (member[other(n, 2)] && next > 0)))

/* What a grant has for the next flush of a node. */
#define to_write(n, g) (victim[g] == OPEN && from[g] == n \
	&& (basis[g] == FIRM || thief[basis[g]] == CONFIRMED))
#define to_take(n, g) (thief[g] == CONFIRMED && to[g] == n)
#define grant_news(n, g) (to_write(n, g) || to_take(n, g))
#define news(n) (firm[n] != held[n] || claimed[n] != 0 \
	|| grant_news(n, 0) || grant_news(n, 1) || grant_news(n, 2))

/* The cut: all that is firm or becomes so, less what is complete by now. */
inline cut(n, finished) {
	i = 0;
	do
	:: i < GRANTS ->
		if
#ifdef BUG_EARLY
		:: to[i] == n && (thief[i] == CONFIRMED || thief[i] == TENTATIVE) ->
#else
		:: to_take(n, i) ->
#endif
			firm[n] = firm[n] | tentative[i];
			tentative[i] = 0;
			thief[i] = TAKEN
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < GRANTS ->
		if
		:: victim[i] == OPEN && from[i] == n && (basis[i] == FIRM || thief[basis[i]] == TAKEN) ->
			basis[i] = FIRM;
			victim[i] = CUT
		:: else
		fi;
		i++
	:: else -> break
	od;
	cut_complete[n] = finished;
	firm[n] = firm[n] & ~cut_complete[n];
	cut_held[n] = firm[n];
	transaction[n] = FLUSH
}

proctype node(byte me) {
end:	do
	:: atomic { can_give(me, firm[me]) -> give(me, FIRM, firm[me]) }
	/* Takes a cut: nothing has been completed, one unit, or all. */
	:: d_step { idle(me) && news(me) -> cut(me, 0) }
	:: d_step { idle(me) && (news(me) || firm[me] != 0) -> cut(me, highest(firm[me])) }
	:: d_step { idle(me) && (news(me) || firm[me] != 0) -> cut(me, firm[me]) }
	/* It is written. */
	:: d_step { transaction[me] == FLUSH ->
		held[me] = cut_held[me];
		done = done | cut_complete[me];
		claimed[me] = 0;
		i = 0;
		do
		:: i < GRANTS ->
			if
			:: victim[i] == CUT && from[i] == me ->
#ifndef BUG_NOTRANSIT
				transit[i] = true
#endif
			:: else
			fi;
			if
			:: thief[i] == TAKEN && to[i] == me ->
				assert(transit[i]);
#ifndef BUG_TWICE
				transit[i] = false
#endif
			:: else
			fi;
			i++
		:: else -> break
		od;
		cut_held[me] = 0; cut_complete[me] = 0;
		transaction[me] = UNKNOWN;
		partition() }
	/* The node learns that. */
	:: d_step { transaction[me] == UNKNOWN ->
		transaction[me] = NONE;
		i = 0;
		do
		:: i < GRANTS ->
			if
			:: thief[i] == TAKEN && to[i] == me -> over(i)
			:: victim[i] == CUT && from[i] == me && (transit[i] || thief[i] != GONE) -> victim[i] = WRITTEN
			/* The thief has taken it in meanwhile, and died. */
			:: victim[i] == CUT && from[i] == me && !transit[i] && thief[i] == GONE -> over(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0 }
	/* Claims what the dead held, or had claimed. */
	:: d_step { hungry(me) && can_claim(held, other(me, 1)) -> claim_from(me, held[other(me, 1)]) }
	:: d_step { hungry(me) && can_claim(held, other(me, 2)) -> claim_from(me, held[other(me, 2)]) }
	:: d_step { hungry(me) && can_claim(held, other(me, 3)) -> claim_from(me, held[other(me, 3)]) }
	:: d_step { hungry(me) && can_claim(claimed, other(me, 1)) -> claim_from(me, claimed[other(me, 1)]) }
	:: d_step { hungry(me) && can_claim(claimed, other(me, 2)) -> claim_from(me, claimed[other(me, 2)]) }
	:: d_step { hungry(me) && can_claim(claimed, other(me, 3)) -> claim_from(me, claimed[other(me, 3)]) }
	/* Dies. What it has given and not written will never be; what it was given, somebody will claim. */
	:: d_step { member[me] && !quiet && me != LATE ->
		member[me] = false;
		firm[me] = 0;
#ifndef BUG_FENCE
		transaction[me] = NONE; cut_held[me] = 0; cut_complete[me] = 0;
#endif
		i = 0;
		do
		:: i < GRANTS ->
			if
			:: victim[i] != UNUSED && victim[i] != OVER && from[i] == me ->
				victim[i] = (transit[i] || thief[i] == TAKEN -> WRITTEN : VOID);
				basis[i] = FIRM
			:: else
			fi;
			if
			:: victim[i] != UNUSED && victim[i] != OVER && to[i] == me ->
				tentative[i] = 0;
				if
				:: thief[i] == TAKEN && !transit[i] -> over(i)
				:: else -> thief[i] = GONE
				fi
			:: else
			fi;
			if
			:: victim[i] == VOID && (thief[i] == GONE || thief[i] == REFUSED) -> over(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0 }
	od
}

#define lives(g) (member[from[g]])
/* A message of a grant can arrive. It is known to be void. The victim can have it back. */
#ifdef BUG_FORGET
#define repeats(g) (victim[g] == OPEN || victim[g] == CUT)
#else
#define repeats(g) (victim[g] == OPEN || victim[g] == CUT || victim[g] == WRITTEN)
#endif
#define comes(g) (victim[g] != UNUSED && victim[g] != OVER && ((lives(g) && repeats(g)) || !quiet))
#ifdef BUG_LATE
#define void(g) (victim[g] == VOID || !transit[g])
#else
#ifdef BUG_SILENT
#define void(g) (!lives(g) && !transit[g])
#else
#define void(g) ((lives(g) && victim[g] == VOID) || (!lives(g) && !transit[g]))
#endif
#endif
#ifdef BUG_TAKEBACK
#define back(g) (lives(g) && (victim[g] == OPEN || victim[g] == CUT || victim[g] == WRITTEN))
#else
#define back(g) (victim[g] == OPEN && lives(g))
#endif

proctype grant(byte me) {
end:	do
	/* On the thief. The grant comes: the victim lives and repeats it, or it is a late copy. */
	:: d_step { comes(me) && thief[me] == UNHEARD -> tentative[me] = units[me]; thief[me] = TENTATIVE }
#ifdef BUG_BOTH
	:: d_step { comes(me) && thief[me] == CLAIMING -> tentative[me] = units[me]; thief[me] = CONFIRMED }
#endif
	:: d_step { comes(me) && thief[me] == UNHEARD ->
		if :: victim[me] == VOID -> over(me) :: else -> thief[me] = REFUSED fi }
	/* It is worked on, and given on. */
	:: atomic { can_give(to[me], tentative[me]) -> give(to[me], me, tentative[me]) }
	/* The basis is confirmed: the victim says so, or the thief sees it. */
	:: d_step { thief[me] == TENTATIVE && transit[me] -> thief[me] = CONFIRMED }
	/* It is void: the victim says so, or is gone, and nothing is there. */
	:: d_step { thief[me] == TENTATIVE && void(me) ->
		i = 0;
		do
		:: i < GRANTS ->
			if
			:: victim[i] == OPEN && basis[i] == me ->
				basis[i] = FIRM;
#ifndef BUG_VOID
				victim[i] = VOID;
				if :: thief[i] == GONE || thief[i] == REFUSED -> over(i) :: else fi
#endif
			:: else
			fi;
			i++
		:: else -> break
		od;
#ifdef BUG_LATE
		if :: lives(me) && victim[me] != VOID -> tentative[me] = 0; thief[me] = OVER :: else -> over(me) fi
#else
		over(me)
#endif
		}
	/* On the victim. The tasks were refused, or the thief is gone. */
	:: d_step { back(me) && (thief[me] == REFUSED || thief[me] == GONE) ->
		if
		:: basis[me] == FIRM -> firm[from[me]] = firm[from[me]] | units[me]
		:: else -> tentative[basis[me]] = tentative[basis[me]] | units[me]
		fi;
#ifdef BUG_TAKEBACK
		if :: victim[me] == OPEN -> over(me) :: else -> thief[me] = UNHEARD fi
#else
		over(me)
#endif
		}
	/* Refused, and written already: the victim claims it. */
	:: d_step { victim[me] == WRITTEN && thief[me] == REFUSED && idle(from[me]) ->
		claim_transit(from[me], me) }
	/* The thief is gone: anybody claims it. */
	:: d_step { transit[me] && gone(to[me]) && hungry(0) -> claim_transit(0, me) }
	:: d_step { transit[me] && gone(to[me]) && hungry(1) -> claim_transit(1, me) }
	:: d_step { transit[me] && gone(to[me]) && hungry(2) -> claim_transit(2, me) }
	:: d_step { transit[me] && gone(to[me]) && hungry(3) -> claim_transit(3, me) }
	/* The victim is gone, and the thief has not heard of the grant, or has refused it: it claims it. */
	:: d_step { transit[me] && !lives(me) && hungry(to[me]) &&
			(thief[me] == UNHEARD || thief[me] == REFUSED) ->
		thief[me] = CLAIMING;
		transaction[to[me]] = CLAIM }
	:: d_step { transaction[to[me]] == CLAIM && thief[me] == CLAIMING ->
		transaction[to[me]] = NONE;
		claim_transit(to[me], me) }
#ifdef BUG_BOTH
	:: d_step { transaction[to[me]] == CLAIM && thief[me] == CONFIRMED && !lives(me) ->
		transaction[to[me]] = NONE;
		transit[me] = false;
		claimed[to[me]] = claimed[to[me]] | units[me];
		firm[to[me]] = firm[to[me]] | units[me] }
#endif
	od
}

active proctype faults() { quiet = true }

proctype late() {
end:	!member[0] && !member[1] && !member[2] -> member[LATE] = true
}

init {
	atomic {
		i = 0;
		do :: i < LATE -> member[i] = true; i++ :: else -> break od;
		held[0] = ALL;
		firm[0] = ALL;
		i = 0;
		do :: i < NODES -> run node(i); i++ :: else -> break od;
		i = 0;
		do :: i < GRANTS -> run grant(i); i++ :: else -> break od;
		run late()
	}
	timeout -> atomic {
		assert(done == ALL);
		i = 0;
		do
		:: i < NODES -> assert(firm[i] == 0 && transaction[i] == NONE); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < GRANTS -> assert(thief[i] == UNHEARD || thief[i] == OVER); i++
		:: else -> break
		od
	}
}
