package suggest

import (
	"regexp"
	"slices"
	"strings"
)

// This file lists the names of columns and states. They were counted in outbox tables of public code; the
// most frequent come first.

// fold maps event_type, eventType, EventType and EVENT-TYPE to the same name.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// bare removes common prefixes and suffixes from a name: msgKey is a key, body_txt a body.
func bare(name string) string {
	m := around.FindStringSubmatch(fold(name))
	return m[1]
}

var around = regexp.MustCompile(`^(?:outbox|kafka|message|msg|event|evt|record|rec|dest|target|ts|dt)?(.+?)(?:txt|text|json|jsonb|bytes|utc|col)?$`)

var (
	payloadNames = words(`payload payloadjson jsonpayload eventpayload messagepayload payloadbytes body eventbody messagebody bodybytes
		eventdata messagedata data content eventcontent messagecontent serializedevent envelope message msg value recordvalue value event details document doc canonicaljson json eventjson nutzlast inhalt daten nachricht`)
	typeNames      = words(`eventtype eventname messagetype type messagename eventtypename eventkind typename kind name event operation action what ereignistyp ereignis nachrichtentyp`)
	aggregateNames = words(`aggregatetype aggregatename aggregate entitytype resourcetype streamtype eventabletype`)
	topicNames     = words(`topic topicname kafkatopic destinationtopic targettopic eventtopic messagetopic destination`)
	keyNames       = words(`partitionkey messagekey kafkakey recordkey eventkey orderingkey topickey key aggregateid aggregateuuid aggregaterootid aggregateidentifier
		schluessel entityid resourceid streamid groupid objectid eventableid`)
	headerNames  = words(`headers messageheaders eventheaders kafkaheaders customheaders headersjson metadata meta attributes`)
	createdNames = words(`createdat createdon createdonutc createdatutc createdutc created occurredat occurredon occurredonutc occurredatutc occurred
		insertedat insertedon added addedat dateadded dateaddedutc enqueuedat enqueuetime queuedat publicationdate eventtime timestamp recordedat inserted made erstelltam angelegtam erzeugtam creationtime creationdate createddate
		createddateutcat createdtimestamp createtime capturedat auditcreatedat`)
	sequenceNames = words(`seq sequence sequencenumber sequenceid sequenceno position globalposition globalsequence offset ordinal eventsequence order`)
	statusNames   = words(`status state outboxstatus eventstatus messagestatus publishstatus publishingstatus deliverystatus sendstatus sendingstatus processingstatus dispatchstatus statusname outboxstate eventstate lifecycle zustand versandstatus`)
	attemptNames  = words(`attempts attempt attemptcount processcount sendcount deliverycount retrycount retries retry publishattempts errorcount errorscount numberofattempts failurecount failedattempts timesattempted timessent
		deliveryattempts sendattempts processattempts attemptnumber tries trycount retryattempts requeuecount finishedattempts versuche fehlversuche anzahlversuche`)
	mostNames  = words(`maxattempts maxretries maxretry maxretrycount retrylimit`)
	errorNames = words(`lasterror error errormessage lasterrormessage errormsg errorlog failurereason lastfailurereason failuremessage errordetails lasterrortext errortext exception failreason processingerror fehler fehlertext fehlermeldung letzterfehler`)
	failNames  = words(`failedat failedon failedonutc failedatutc abandonedat deadat deadletteredat deadletterat discardedat gaveupat poisonedat`)
	dueNames   = words(`availableat availableafter nextattemptat nextretryat nextattempt nextretry nextattempttime nextretrytime nextrunat nextrun nextpublishat retryat retryafter scheduledat scheduledfor
		dueat visibleat visibleafter processafter notbefore deliverafter sendafter publishafter runat nextdeliveryat backoffuntil`)
	// Flags of rows that must not be published.
	keptNames = words(`failedpermanently permanentlyfailed ispermanentlyfailed permanentfailure dead isdead deadlettered isdeadlettered isdeadletter abandoned isabandoned givenup poisoned ispoisoned poison
		cancelled canceled iscancelled iscanceled skipped isskipped ignored isignored discarded isdiscarded failed isfailed hasfailed`)
	deletedNames   = words(`deleted isdeleted archived isarchived disabled isdisabled`)
	untilNames     = words(`lockeduntil claimeduntil leaseuntil leaseexpiresat processinguntil processingexpiresat lockexpiresat reserveduntil`)
	leaseNames     = slices.Concat(untilNames, words(`processingat lockedat claimedat lockedby claimedby leaseowner lockowner processingowner instanceid`))
	partitionNames = words(`partition kafkapartition partitionnumber`)
	sharedNames    = words(`broker channel queue queuename transport exchange listenerid handlerid consumer subscriber connector`)
	otherIDs       = words(`id eventid messageid outboxid correlationid causationid tenantid traceid spanid requestid userid actorid schemaid workerid batchid parentid conversationid`)
)

// otherTimes are names of times that are not the time of sending.
var otherTimes = slices.Concat(createdNames, dueNames, leaseNames, failNames, words("updatedat modifiedat lastmodifiedat deletedat expiresat expiryat lastattemptat lasttriedat lasttryat"))

func words(text string) []string { return strings.Fields(text) }

// headerLike reports whether the name says that the column holds headers. Such a column is never the payload.
func headerLike(name string) bool {
	folded := fold(name)
	return slices.Contains(headerNames, folded) || slices.Contains(headerNames, bare(name)) || strings.Contains(folded, "header") || strings.Contains(folded, "metadata")
}

// sentName matches a timestamp or a flag for rows that were sent, such as published_at, isProcessed or
// ProcessedOnUtc.
var sentName = regexp.MustCompile(`^(?:is|was|has|been)?(published|sent|send|dispatched|delivered|processed|completed|completion|done|relayed|forwarded|emitted|handled|acknowledged|acked|consumed|versendet|gesendet|verarbeitet|erledigt|veroeffentlicht|fannedout|exported|propagated|transmitted|finished|produced|pushed|notified|publish)(?:at|on|am|time|date|timestamp|ts)?(?:utc)?(?:at)?$`)

// sentOrder decides which of two such columns is meant: the earlier word.
var sentOrder = words(`published publish sent send dispatched delivered relayed forwarded emitted produced pushed processed completed completion done handled`)

func sentRank(folded string) int {
	m := sentName.FindStringSubmatch(folded)
	if m == nil {
		return -1
	}
	if i := slices.Index(sentOrder, m[1]); i >= 0 {
		return i
	}
	return len(sentOrder)
}

// meaning is the meaning of a status value.
type meaning int

const (
	meansNothing meaning = iota
	meansPending
	meansProcessing
	meansSent
	meansFailed // failed, and may be tried again
	meansDead   // given up
	meansOther  // left alone, for example cancelled or skipped
)

var meanings = byMeaning(map[meaning]string{
	meansPending: `pending new created ready queued waiting wait unpublished unsent unprocessed undelivered notsent notpublished notprocessed init initial initialized initiated open scheduled todo retry
		retrying retryscheduled pendingretry retrypending enqueued stored saved staged registered awaiting tosend topublish toprocess n p offen neu wartend ausstehend`,
	meansProcessing: `processing inprogress inprocess claimed publishing sending locked inflight dispatching running reserved delivering picked leased taken working acquired inbearbeitung`,
	meansSent: `sent published delivered processed done completed complete success succeeded successful dispatched finished acked acknowledged ok produced relayed forwarded emitted handled consumed
		executed publish out versendet gesendet verarbeitet erledigt veroeffentlicht y`,
	meansFailed: `failed fail failure error errored fehlgeschlagen fehler broken`,
	meansDead:   `dead deadletter deadlettered dlq abandoned givenup exhausted poison poisoned permanentlyfailed failedpermanently permanentfailure failedtomanytimes rejected`,
	meansOther:  `cancelled canceled skipped ignored discarded expired archived aborted disabled`,
})

func byMeaning(all map[meaning]string) map[string]meaning {
	out := map[string]meaning{}
	for m, list := range all {
		for _, word := range words(list) {
			out[word] = m
		}
	}
	return out
}

func meansWhat(value string) meaning { return meanings[fold(value)] }
