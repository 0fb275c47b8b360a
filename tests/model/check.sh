#!/bin/sh
# The model's own checks: what it finds by searching against the contract's formulas, and the vectors.
out=$(python3 "$(dirname "$0")/selfcheck.py" "${WEIR_BUILD:-build}/tests/tails.vec" 2>&1)
code=$?
echo "$out"
if [ $code -eq 0 ]; then
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
fi
exit $code
