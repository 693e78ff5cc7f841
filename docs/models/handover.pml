/* The hand-over of tasks from a victim to a thief, over a network that loses, repeats and reorders, while the thief may leave.
 *
 *   victim                                   thief
 *     Grant(number, settled below) ────────▶   takes it once, or refuses it once; remembers which
 *     forgets it, or takes it back ◀────────   Ack(number), Refuse(number)
 *     Settled(number, settled below) ──────▶   its answer was heard
 *
 * Every task has one owner: that is asserted wherever ownership changes. And every grant is settled in the end, if the
 * network loses no more than LOSSES messages. It is taskwork/core/src/{victim,receipts,drain}.rs in small: GRANTS tasks, of which the thief
 * remembers WINDOW. Checked by tests/scenarios/models.rs, also with each of the bugs below, which must be found.
 *
 *   BUG_FORGET    the thief does not remember what it has taken
 *   BUG_WINDOW    the victim opens more grants than the thief remembers
 *   BUG_LEAVE     the thief leaves before its acknowledgements were heard
 *   BUG_REVOKE    the victim takes a grant back because its answer is late
 */

#define GRANTS 3
#define WINDOW 2
#define LOSSES 2
#define REPEATS 1

mtype = { GRANT, ACK, REFUSE, SETTLED };

/* Messages under way, in any order. */
chan to_thief = [4] of { mtype, byte, byte };
chan to_victim = [4] of { mtype, byte };

byte losses = LOSSES;
byte repeats = REPEATS;

/* Who owns the task of each grant. */
bool victims[GRANTS];
bool thiefs[GRANTS];

/* The victim: grants below `next` were opened. */
bool open[GRANTS];
byte next = 0;

/* The thief: what it has decided. 0 nothing, 1 taken, 2 refused. */
byte decided[GRANTS];
bool heard[GRANTS];
byte below = 0;
bool leaving = false;
bool left = false;

#define some_open (open[0] || open[1] || open[2])
#define taken_unheard(n) (decided[n] == 1 && !heard[n] && n >= below)
#define unheard (taken_unheard(0) || taken_unheard(1) || taken_unheard(2))

/* The oldest grant that is open: below it all is settled. */
#define oldest (open[0] -> 0 : (open[1] -> 1 : (open[2] -> 2 : next)))

#ifdef BUG_WINDOW
#define room true
#else
#define room (next - oldest < WINDOW)
#endif

/* What the thief remembers of a grant that is not settled below its mark. */
inline remembered(count) {
	count = 0;
	i = below;
	do
	:: i < GRANTS -> if :: decided[i] != 0 -> count++ :: else fi; i++
	:: else -> break
	od;
	i = 0
}

active proctype victim() {
	byte number, i;
	i = 0;
	do :: i < GRANTS -> victims[i] = true; i++ :: else -> break od;
	i = 0;
	do
	/* Opens another grant, if the thief can remember it. */
	:: atomic { next < GRANTS && !left && room && nfull(to_thief) ->
		open[next] = true;
		next++;
		to_thief!GRANT(next - 1, oldest) }
	/* Says one again that was not answered: in the model the oldest, in the code all. */
	:: atomic { !left && some_open && empty(to_thief) && empty(to_victim) ->
#ifdef BUG_REVOKE
		number = oldest;
		open[number] = false;
		assert(!thiefs[number])
#else
		to_thief!GRANT(oldest, oldest)
#endif
		}
	:: atomic { nfull(to_thief) && to_victim??[ACK, number] -> to_victim??ACK(number);
		if
		:: open[number] -> open[number] = false; assert(thiefs[number]); victims[number] = false
		:: else
		fi;
		to_thief!SETTLED(number, oldest) }
	:: atomic { nfull(to_thief) && to_victim??[REFUSE, number] -> to_victim??REFUSE(number);
		if
		:: open[number] -> open[number] = false; assert(!thiefs[number])
		:: else
		fi;
		to_thief!SETTLED(number, oldest) }
	/* The thief has left cleanly: what it has not taken is ours again. */
	:: atomic { left && some_open ->
		number = 0;
		do
		:: number < GRANTS ->
			if
			:: open[number] -> open[number] = false; assert(!thiefs[number])
			:: else
			fi;
			number++
		:: else -> break
		od }
	:: (next == GRANTS || left) && !some_open -> break
	od
}

active proctype thief() {
	byte number, mark, count, i;
	do
	:: atomic { nfull(to_victim) && to_thief??[GRANT, number, mark] -> to_thief??GRANT(number, mark);
		if :: mark > below -> below = mark :: else fi;
		remembered(count);
		if
		:: number < below
#ifdef BUG_FORGET
		:: number >= below && !leaving && decided[number] == 1 ->
			assert(victims[number] && !thiefs[number])
#else
		:: number >= below && decided[number] == 1 -> to_victim!ACK(number)
#endif
		:: number >= below && decided[number] == 2 -> to_victim!REFUSE(number)
		:: number >= below && decided[number] == 0 && count >= WINDOW
		:: number >= below && decided[number] == 0 && count < WINDOW && !leaving ->
			decided[number] = 1;
			assert(!thiefs[number]);
			thiefs[number] = true;
			to_victim!ACK(number)
		:: number >= below && decided[number] == 0 && count < WINDOW && leaving ->
			decided[number] = 2;
			to_victim!REFUSE(number)
		fi }
	:: atomic { to_thief??[SETTLED, number, mark] -> to_thief??SETTLED(number, mark);
		heard[number] = true;
		if :: mark > below -> below = mark :: else fi }
	:: atomic { !leaving -> leaving = true }
	/* Says again what may not have been heard. */
	:: atomic { leaving && !left && unheard && empty(to_victim) && empty(to_thief) ->
		if
		:: taken_unheard(0) -> to_victim!ACK(0)
		:: !taken_unheard(0) && taken_unheard(1) -> to_victim!ACK(1)
		:: !taken_unheard(0) && !taken_unheard(1) -> to_victim!ACK(2)
		fi }
#ifdef BUG_LEAVE
	:: atomic { leaving && !left -> left = true }
#else
	:: atomic { leaving && !left && !unheard -> left = true }
#endif
	:: left -> break
	:: !leaving && next == GRANTS && !some_open && empty(to_thief) -> break
	od;
	/* What comes after it has gone is heard by nobody. */
end:	do
	:: to_thief?_, _, _
	od
}

/* Loses messages, and repeats them. */
active proctype network() {
	byte number, mark;
	mtype kind;
end:	do
	:: atomic { losses > 0 && nempty(to_thief) -> to_thief?_, _, _; losses-- }
	:: atomic { losses > 0 && nempty(to_victim) -> to_victim?_, _; losses-- }
	:: atomic { repeats > 0 && nempty(to_thief) && nfull(to_thief) ->
		to_thief?<kind, number, mark>; to_thief!kind(number, mark); repeats-- }
	:: atomic { repeats > 0 && nempty(to_victim) && nfull(to_victim) ->
		to_victim?<kind, number>; to_victim!kind(number); repeats-- }
	od
}

/* Every grant is settled in the end. */
ltl settles { <> [] (!open[0] && !open[1] && !open[2]) }
