//! Pages for people who run jobs. The files are in `docs`, and their examples are tests.

#[doc = include_str!("../docs/coming_from.md")]
pub mod coming_from {}

#[doc = include_str!("../docs/credentials.md")]
pub mod credentials {}

#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/frameworks.md")]
pub mod frameworks {}

#[doc = include_str!("../docs/jobs.md")]
pub mod jobs {}

#[doc = include_str!("../docs/names.md")]
pub mod names {}

#[doc = include_str!("../docs/nightly.md")]
pub mod nightly {}

#[doc = include_str!("../docs/standby.md")]
pub mod standby {}

#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/transports.md")]
pub mod transports {}
