package checkpoint

import "testing"

// More topics are missing than are parked one by one, in every seed, together with
// what loses a park, a connection, an answer or a leader.
func TestManyTopicsAreMissing(t *testing.T) {
	t.Parallel()
	for _, faults := range [][]eventKind{
		{evTopicDown},
		{evTopicDown, evKill},
		{evTopicDown, evSlotLost},
		{evTopicDown, evFailover, evDrop},
		{evTopicDown, evParksUnknown, evFreeze},
		{evTopicDown, evRequeue, evMarkLost},
	} {
		off := switches{often: faults, about: (*plan).manyTopics}
		if seed, v := firstBroken(*simFrom, *simSeeds/10, off); v != nil {
			t.Errorf("with %v often, seed %d: %v", faults, seed, v)
		}
	}
}
