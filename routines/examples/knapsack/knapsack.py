"""The items of the highest profit that fit into a knapsack, by branch and bound."""

import routines


class Knapsack(routines.Search):
    def __init__(self, capacity, profits, weights):
        order = sorted(range(len(profits)), key=lambda item: profits[item] / weights[item], reverse=True)
        self.items = [(profits[item], weights[item], item) for item in order]
        # The next item, the profit, the free capacity, and the chosen items.
        self.stack = [(0, 0, capacity, ())]

    def at_most(self, item, profit, free):
        """Returns a bound on the profit: the last item may be cut."""
        for value, weight, _ in self.items[item:]:
            if weight > free:
                return profit + value * free / weight
            profit, free = profit + value, free - weight
        return profit

    def search(self, cx):
        asked, bound, stack = cx.asked, cx.bound, self.stack
        while stack and not asked[0]:
            item, profit, free, chosen = stack.pop()
            cx.count["states"] += 1
            # The least cost is the highest profit.
            if -self.at_most(item, profit, free) >= bound[0]:
                continue
            if item == len(self.items):
                cx.offer(-profit, sorted(chosen))
                continue
            value, weight, number = self.items[item]
            stack.append((item + 1, profit, free, chosen))
            if weight <= free:
                stack.append((item + 1, profit + value, free - weight, chosen + (number,)))

    def split(self):
        if len(self.stack) < 2:
            return None
        give, self.stack = self.stack[::2], self.stack[1::2]
        return self.but(stack=give)
