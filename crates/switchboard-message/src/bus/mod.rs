//! A bus of typed messages inside the process.
