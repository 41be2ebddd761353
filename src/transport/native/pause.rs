//! How a client that pauses stays out of step with others.

use std::time::Duration;

/// Makes a pause a little longer or shorter, so that clients that lost the same server do not come back
/// in step.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}
