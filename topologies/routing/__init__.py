"""Routes of a fabric: next hops, kernel tables, and which of them ECMP's hash takes."""
