package sink

import (
	"crypto/tls"
	"errors"

	"github.com/IBM/sarama"
)

// ErrorClass is the error of a try in one of a few words: timeout, leadership,
// replicas, topic, authorization, record, producer, broker, certificate, or connection where
// no broker answered.
func ErrorClass(err error) string {
	var code sarama.KError
	var untrusted *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &code):
	case errors.As(err, &untrusted), errors.As(err, &alert):
		return "certificate"
	default:
		return "connection"
	}
	switch code {
	case sarama.ErrRequestTimedOut:
		return "timeout"
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch:
		return "leadership"
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		return "replicas"
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
		return "topic"
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed:
		return "authorization"
	case sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidMessage, sarama.ErrInvalidRecord, sarama.ErrInvalidTimestamp:
		return "record"
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID, sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced:
		return "producer"
	default:
		return "broker"
	}
}
