// Package page tests the operator's page in a real Chromium: while a demo with
// an outage runs, and with rows of a real database, hostile ones among them.
// Screenshots are left in OUTBOX_TEST_ARTEFACTS (otherwise in the test's own
// folder). It has tests only.
//
// Without a Chromium the tests are skipped, loudly; OUTBOX_TEST_BROWSER=required
// makes that a failure.
package page
