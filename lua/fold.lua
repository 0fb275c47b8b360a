-- Several limits, one answer: rows of allowed, limit, remaining, retry, reset, delay.

-- Folds `rows` into `folded`; `binding` is the row that bound: of the denied the one that waits longest
-- (never is longer than anything), else the one with least left. Limit and remaining are that row's.
--@block fold
local first = rows[1]
local folded, binding = {first[1], 0, 0, 0, first[5], first[6]}, 1
for i = 2, #rows do
    local row = rows[i]
    if row[1] == 0 then folded[1] = 0 end
    if row[5] > folded[5] then folded[5] = row[5] end
    if row[6] > folded[6] then folded[6] = row[6] end
end
for i = 2, #rows do
    local row, best = rows[i], rows[binding]
    if folded[1] == 1 then
        if row[3] < best[3] then binding = i end
    elseif row[1] == 0 then
        if best[1] == 1 or (best[4] ~= -1 and (row[4] == -1 or row[4] > best[4])) then binding = i end
    end
end
folded[2], folded[3], folded[4] = rows[binding][2], rows[binding][3], rows[binding][4]
if folded[1] == 0 then folded[6] = 0 end
