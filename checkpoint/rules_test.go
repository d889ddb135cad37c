package checkpoint

import (
	"cmp"
	"reflect"
	"testing"
)

// This file shows that the rules of docs/internals/design.md are needed. Each rule of the Core has a mutant of
// the source (test/mutants/rules.go), which must break an invariant in the world that this file defines for
// the rule. The rules of the Core's surroundings (worldRules) are switched off here.

// unseen are rules of the world that no seed needs, and which scenario shows them.
var unseen = map[string]string{
	"lockGuard": "needs a failover between two parks: TestParksAreWrittenWhereTheLockIs",
}

// near are seeds that need a rule, for rules that few seeds need: the search begins there. When a change of the
// simulation makes one of them pass, the search takes longer, and -v names the next.
var near = map[string]uint64{
	"startZero":           1262,
	"fencing":             993,
	"insertAfterSnapshot": 1849,
	"snapshotAfterXID":    1524,
	"failedReadBack":      378,
	"epochContinuity":     33572,
	"onePhase":            147,
	"uncoveredTold":       126,
	"drainsTopic":         532,
	"releasesOne":         12050,
	"unsureMarks":         451,
	"retainsFlying":       235,
}

// often are the faults without which a rule has nothing to protect from.
var often = map[string][]eventKind{
	"postponedWritten":     {evTopicDown, evClusterDown},
	"rewriteUnknown":       {evParksUnknown, evKill},
	"keepFromStatement":    {evSlotLost},
	"repeatDiscarded":      {evInvisible},
	"repeatInProgress":     {evInvisible, evKill},
	"checkKept":            {evSlotLost},
	"voidHandBack":         {evDrop, evSlotLost},
	"voidDiscarded":        {evFailover, evRetained},
	"invisibleWaits":       {evInvisible, evKill},
	"skipInFlight":         {evDrop},
	"inFlightInLedger":     {evDrop, evMarkLost},
	"watchAbandoned":       {evDrop, evRequeue},
	"watchNotParkedSecond": {evRequeue},
	"startZero":            {evFailover},
	"fencing":              {evFreeze, evDrop, evDelete},
	"epochGuard":           {evFreeze, evDrop},
	"lockGuard":            {evFailover, evParksUnknown},
	"insertAfterSnapshot":  {evSlotLost},
	"snapshotAfterXID":     {evInvisible, evSlotLost},
	"failedReadBack":       {evKill},
	"epochContinuity":      {evFreeze, evDrop, evParksUnknown},
	"parksReadBack":        {evKill},
	"drainAwaits":          {evDrain},
	"voidAnswers":          {evDrop},
	"blockStays":           {evTopicDown, evRequeue},
	"blockAsks":            {evRequeue, evDelete},
	"releasesOne":          {evTopicDown},
	"retainsFlying":        {evRetain},
	"drainsTopic":          {evAddPartition},
	"nextBounded":          {evSkew, evKill},
	"dueByCommit":          {evSkew},
	"watchPauses":          {evSkew},
	"looksFirst":           {evRelay},
	"headStart":            {evRelay},
	"headStartAgain":       {evRelay, evInvisible},
	"horizonAges":          {evRelay, evSlotLost},
	"parkTakesQueued":      {evRelayDone, evSlotLost},
	"queuedInFlight":       {evRelayDone, evSlotLost},
	"queuedAwaited":        {evRelayDone, evSlotLost},
	"unclaims":             {evRelayDone, evClusterDown},
	"knownParks":           {evTopicDown},
	"rowsAlone":            {evUnmarked},
	"findsSameRow":         {evReissue},
	"asSeen":               {evChange},
	"notDueWaits":          {evChange},
	"heldAsSeen":           {evChange, evClusterDown},
}

// about are rules that need a world of their own.
var about = map[string]func(*plan){
	"blockAsks":      (*plan).blocksKeys,
	"headStartAgain": (*plan).behindStandby,
	"blockStays":     (*plan).blocksKeys,
	"sameRow":        (*plan).scarceWAL,
	"repeatInProgress": func(p *plan) {
		p.scarceWAL()
		p.behindStandby()
		p.keys, p.procs = 1, 1
		p.weights[evKill] = 4
	},
	"knownParks":       (*plan).manyTopics,
	"postponedWritten": func(p *plan) { p.keys, p.clusters = 1, []string{"main", "other"} },
}

// scarceWAL parks the stream now and then while it streams.
func (p *plan) scarceWAL() {
	p.cfg.WALBudget, p.weights[evRetained] = 600, 2*usual[evTake]
}

// worldOf returns the world in which a rule is needed often.
func worldOf(rule string) switches { return switches{often: often[rule], about: about[rule]} }

// Every rule of the world is needed: with it off, and all others in force, some
// seed breaks an invariant, which holds there with the rule.
func TestWorldRulesMatter(t *testing.T) {
	if testing.Short() || ruleSeeds == 0 {
		t.Skip("thousands of seeds")
	}
	rules := reflect.TypeFor[worldRules]()
	for i := range rules.NumField() {
		name := rules.Field(i).Name
		t.Run(name, func(t *testing.T) {
			why, known := unseen[name]
			seeds := ruleSeeds
			if known {
				seeds /= 40
			}
			with, without := worldOf(name), worldOf(name)
			without.world = worldRule(name)
			switch seed, v := firstBroken(cmp.Or(near[name], *simFrom), seeds, without); {
			case v != nil:
				t.Logf("seed %d: %v", seed, v)
				if v, _ = simulate(seed, with, -1, nil); v != nil {
					t.Errorf("it breaks with the rule, too, and says nothing about it: %v", v)
				}
			case known:
				t.Logf("nothing breaks without it: %s", why)
			default:
				t.Errorf("%d seeds without this rule broke nothing", seeds)
			}
		})
	}
}

// worldRule switches one rule off.
func worldRule(name string) (off worldRules) {
	// Package reflect alone sets exported fields only.
	field := reflect.ValueOf(&off).Elem().FieldByName(name)
	*(*bool)(field.Addr().UnsafePointer()) = true
	return off
}
