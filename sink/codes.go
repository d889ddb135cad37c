package sink

import (
	"crypto/tls"
	"errors"

	"github.com/IBM/sarama"
)

// meaning is what a broker's error code says of a try to produce a batch.
type meaning uint8

const (
	// passing: nothing was appended, and another try may succeed. It is what unknown codes mean: no row
	// is charged for what brokers will invent.
	passing    meaning = iota
	appended           // now, or by an earlier try
	inDoubt            // the batch may have been appended
	badRecord          // a record is at fault
	damaged            // on the wire, or a record is at fault
	badTopic           // the topic is at fault
	badSetup           // configuration or authorization: it lasts
	otherState         // the broker knows another sequence, epoch or no such producer
	otherEpoch         // the broker has seen a later epoch
)

// codes says what brokers' error codes mean where a batch is produced, and as which class of errors they are counted
// (see ErrorClass). doc.go has what follows. In a transaction exactlyonce.Classify says what they mean, in an answer to
// Metadata machine.learn. The names that fail_on takes are topicErrorOf's.
var codes = map[sarama.KError]struct {
	means meaning
	class string
}{
	sarama.ErrNoError:                 {appended, ""},
	sarama.ErrDuplicateSequenceNumber: {appended, ""},

	sarama.ErrUnknown:                      {inDoubt, ""},
	sarama.ErrNetworkException:             {inDoubt, ""},
	sarama.ErrRequestTimedOut:              {inDoubt, "timeout"},
	sarama.ErrNotEnoughReplicasAfterAppend: {inDoubt, "replicas"},

	sarama.ErrNotEnoughReplicas:       {passing, "replicas"},
	sarama.ErrNotLeaderForPartition:   {passing, "leadership"},
	sarama.ErrLeaderNotAvailable:      {passing, "leadership"},
	sarama.ErrFencedLeaderEpoch:       {passing, "leadership"},
	sarama.ErrUnknownLeaderEpoch:      {passing, "leadership"},
	sarama.ErrUnknownTopicOrPartition: {passing, "topic"}, // until TopicGrace is over

	sarama.ErrMessageSizeTooLarge:    {badRecord, "record"},
	sarama.ErrMessageSetSizeTooLarge: {badRecord, "record"},
	sarama.ErrInvalidTimestamp:       {badRecord, "record"},
	sarama.ErrInvalidRecord:          {badRecord, "record"},
	sarama.ErrInvalidMessage:         {damaged, "record"},

	sarama.ErrInvalidTopic:                {badTopic, "topic"},
	sarama.ErrTopicAuthorizationFailed:    {badTopic, "authorization"},
	sarama.ErrUnsupportedForMessageFormat: {badTopic, "topic"},
	sarama.ErrPolicyViolation:             {badTopic, "topic"},

	sarama.ErrClusterAuthorizationFailed:         {badSetup, "authorization"},
	sarama.ErrTransactionalIDAuthorizationFailed: {badSetup, "authorization"},
	sarama.ErrSASLAuthenticationFailed:           {badSetup, ""},
	sarama.ErrUnsupportedCompressionType:         {badSetup, ""},
	sarama.ErrUnsupportedVersion:                 {badSetup, ""},
	sarama.ErrInvalidRequiredAcks:                {badSetup, ""},
	sarama.ErrInvalidRequest:                     {badSetup, ""},

	sarama.ErrOutOfOrderSequenceNumber: {otherState, "producer"},
	sarama.ErrUnknownProducerID:        {otherState, "producer"},
	sarama.ErrInvalidProducerIDMapping: {otherState, "producer"},
	sarama.ErrProducerFenced:           {otherState, "producer"},
	sarama.ErrInvalidProducerEpoch:     {otherEpoch, "producer"},
}

// ErrorClass is the error of a try in one of a few words: timeout, leadership,
// replicas, topic, authorization, record, producer, certificate, cluster (it is
// another one), connection (no broker answered) or broker (any other answer).
func ErrorClass(err error) string {
	var code sarama.KError
	switch {
	case errors.As(err, &code):
	case is[*tls.CertificateVerificationError](err), is[tls.AlertError](err):
		return "certificate"
	case is[*otherCluster](err):
		return "cluster"
	default:
		return "connection"
	}
	if class := codes[code].class; class != "" {
		return class
	}
	return "broker"
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
